#include "engine/training/fine_tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>

#include "core/base/clock.h"
#include "core/drawing/picture.h"
#include "core/gguf/atomic_file.h"
#include "engine/loading/engine_config.h"
#include "engine/loading/logged_notices.h"
#include "engine/training/checkpoint.h"
#include "engine/training/learning_rate.h"
#include "engine/training/loss_plot.h"
#include "engine/training/run_settings.h"
#include "engine/training/training_setup.h"

namespace rullama {
namespace {

namespace fs = std::filesystem;

class FineTuning {
 public:
  FineTuning(const LoadedModel& model, const FineTuneOptions& options, const FineTuneHooks& hooks,
             const HostHooks& host, Notices& notices)
      : model_(model),
        options_(options),
        hooks_(hooks),
        notices_(notices),
        setup_(model, model.config(), host, notices) {}

  Result<FineTuneResult> Run(const std::vector<std::string>& plugin_paths) {
    if (!options_.resume.empty() && !options_.first_adapter.empty()) {
      return MakeError(ErrorKind::kUsage, "train.option",
                       "both a checkpoint to resume and an adapter to begin with are given, "
                       "expected one of them");
    }
    RL_RETURN_IF_ERROR(setup_.Read());
    if (options_.test_only && setup_.test().empty()) {
      return MakeError(ErrorKind::kUsage, "train.option",
                       "there is no test set; expected test.jsonl in the folder of --data");
    }
    const bool writes = !options_.test_only && IsFirst();
    if (writes) RL_RETURN_IF_ERROR(CheckOutput());
    if (writes) RL_RETURN_IF_ERROR(MakeFolder(config().output));
    RL_RETURN_IF_ERROR(setup_.OpenTrainer(plugin_paths, options_.group));
    RL_RETURN_IF_ERROR(FillAdapter());
    if (writes && options_.overwrite && !GoesOn()) RL_RETURN_IF_ERROR(RemoveRun(config().output));
    if (!options_.test_only) RL_RETURN_IF_ERROR(Train());
    return Finish();
  }

 private:
  [[nodiscard]] const TrainingConfig& config() const { return setup_.config(); }
  [[nodiscard]] int64_t steps() const { return setup_.steps(); }
  [[nodiscard]] int64_t step() const { return std::ssize(history_.steps); }  // that were done
  [[nodiscard]] Trainer& trainer() { return setup_.trainer(); }

  // Whether this run continues the one in its output folder.
  [[nodiscard]] bool GoesOn() const {
    if (options_.resume.empty()) return false;
    const auto checkpoint = FindCheckpoint(options_.resume);
    std::error_code ignored;
    return checkpoint &&
           fs::equivalent(
               checkpoint->parent_path().empty() ? fs::path(".") : checkpoint->parent_path(),
               config().output, ignored);
  }
  [[nodiscard]] Status CheckOutput() const {
    return options_.overwrite || GoesOn() ? OkStatus() : CheckHasNoRun(config().output);
  }

  // The values of A and B, and of the moments when a run continues.
  Status FillAdapter() {
    if (!options_.resume.empty()) return Resume();
    if (!options_.first_adapter.empty()) return setup_.ReadAdapter(options_.first_adapter);
    if (options_.test_only) return setup_.ReadAdapter(config().output);
    return setup_.DrawAdapter(/*with_b=*/false);
  }

  Status Resume() {
    RL_ASSIGN_OR_RETURN(const fs::path folder, FindCheckpoint(options_.resume));
    RL_ASSIGN_OR_RETURN(RunState state, ReadRunState(folder, Identity()));
    RL_RETURN_IF_ERROR(setup_.ReadAdapter(folder.string()));
    history_ = std::move(state.history);
    if (step() > steps()) {
      return MakeError(ErrorKind::kUsage, "train.resume",
                       "the checkpoint '{}' has done {} steps, this run is to have {}; expected at "
                       "least as many (training.iters, training.epochs)",
                       folder.string(), step(), steps());
    }
    if (state.steps != steps()) {
      notices_.Note(fmt::format(
          "the run had {} steps until now and has {} from here on, after which its learning rates "
          "go too",
          state.steps, steps()));
    }
    for (const std::string& name : trainer().parameters()) {
      RL_RETURN_IF_ERROR(trainer().Write(FirstMomentOf(name), state.m[name]));
      RL_RETURN_IF_ERROR(trainer().Write(SecondMomentOf(name), state.v[name]));
    }
    return OkStatus();
  }

  // Settings that must not change between a checkpoint and the run that continues from it.
  [[nodiscard]] RunIdentity Identity() const {
    const TrainingConfig& c = config();
    const auto text = [](const auto& value) { return fmt::format("{}", value); };
    return {{"model", HashOf(model_.file.file->bytes())},
            {"data", setup_.data_hash()},
            {"keys",
             fmt::format("{}, {}, {}, {}", c.chat_key, c.prompt_key, c.completion_key, c.text_key)},
            {"backend", setup_.backend()},
            {"rank", text(c.rank)},
            {"alpha", text(c.alpha)},
            {"rslora", text(c.rslora)},
            {"weights", text(setup_.pairs().size())},
            {"warmup_steps", c.warmup_steps ? text(*c.warmup_steps) : "a part of the steps"},
            {"schedule", text(static_cast<int>(c.schedule))},
            {"learning_rate", text(c.learning_rate)},
            {"min_learning_rate", text(c.min_learning_rate)},
            {"beta1", text(c.beta1)},
            {"beta2", text(c.beta2)},
            {"epsilon", text(c.epsilon)},
            {"weight_decay", text(c.weight_decay)},
            {"max_grad_norm", text(c.max_grad_norm)},
            {"batch_size", text(c.batch_size)},
            {"grad_accumulation_steps", text(c.grad_accumulation_steps)},
            {"max_seq_length", text(c.max_seq_length)},
            {"seed", text(c.seed)},
            {"shuffle", text(c.shuffle)},
            {"train_on", text(static_cast<int>(c.train_on))},
            {"raw", text(c.raw)},
            {"thinking", text(model_.config().generation.thinking.value_or(false))},
            {"on_long", text(static_cast<int>(c.on_long))},
            {"val_split", text(c.val_split)}};
  }

  // Whether this process validates and writes files.
  [[nodiscard]] bool IsFirst() const {
    return options_.group == nullptr || options_.group->rank() == 0;
  }
  [[nodiscard]] bool IsCancelled() const { return hooks_.cancelled && hooks_.cancelled->load(); }
  // Whether the run ends before its next step, which the ranks of a group agree on in a step.
  [[nodiscard]] bool IsEnding() const { return options_.group == nullptr ? IsCancelled() : last_; }

  Result<TrainingReport> Step(double rate) {
    const auto started = Clock::now();
    RL_ASSIGN_OR_RETURN(const StepResult result,
                        trainer().Step(setup_.ExamplesOf(step()), step(), rate, IsCancelled()));
    last_ = result.last;
    history_.steps.push_back(result.loss.mean());
    return TrainingReport{.step = step(),
                          .steps = steps(),
                          .loss = result.loss,
                          .norm = result.norm,
                          .rate = rate,
                          .seconds = SecondsSince(started),
                          .rows = result.rows};
  }

  Status Train() {
    const LearningRate rates = LearningRateOf(config(), steps());
    RL_RETURN_IF_ERROR(ValidateIfDue());
    TrainingReport report{.steps = steps()};
    while (step() < steps() && !IsEnding()) {
      RL_ASSIGN_OR_RETURN(const TrainingReport one, Step(rates.At(step())));
      if (hooks_.on_step) hooks_.on_step(one);
      report.step = one.step;
      report.loss.sum += one.loss.sum;
      report.loss.tokens += one.loss.tokens;
      report.norm = one.norm;
      report.rate = one.rate;
      report.seconds += one.seconds;
      report.rows += one.rows;
      if (step() % config().steps_per_report == 0 || step() == steps()) {
        if (hooks_.on_report) hooks_.on_report(report);
        report = {.steps = steps()};
      }
      RL_RETURN_IF_ERROR(ValidateIfDue());
      if (step() % config().save_every == 0 && step() != steps()) {
        RL_RETURN_IF_ERROR(SaveCheckpoint());
      }
    }
    return SaveCheckpoint();
  }

  // The loss of the first `batches` batches of a set; -1: of all. If the run is cancelled: of those
  // that were measured.
  Result<LossSum> LossOf(const std::vector<Example>& set, int64_t batches) {
    LossSum loss;
    const auto most = static_cast<size_t>(setup_.examples_of_step());
    const auto batch = static_cast<size_t>(config().batch_size);
    const size_t size =
        batches < 0 ? set.size() : std::min(set.size(), static_cast<size_t>(batches) * batch);
    for (size_t begin = 0; begin < size && !IsCancelled(); begin += most) {
      ExampleRefs examples;
      for (size_t i = begin; i < std::min(begin + most, size); ++i) examples.push_back(&set[i]);
      RL_ASSIGN_OR_RETURN(const LossSum part, trainer().Evaluate(examples));
      loss.sum += part.sum;
      loss.tokens += part.tokens;
    }
    return loss;
  }

  [[nodiscard]] bool IsValidationDue() const {
    if (setup_.validation().empty() || config().val_batches == 0 || !IsFirst()) return false;
    const bool done = !history_.validations.empty() && history_.validations.back().step == step();
    return !done && (step() % config().steps_per_eval == 0 || step() == steps());
  }

  Status ValidateIfDue() {
    if (!IsValidationDue()) return OkStatus();
    RL_ASSIGN_OR_RETURN(const LossSum loss, LossOf(setup_.validation(), config().val_batches));
    if (IsCancelled()) return OkStatus();
    const bool is_best =
        step() > 0 && std::ranges::all_of(history_.validations, [&](const LossPoint& point) {
          return point.step == 0 || loss.mean() < point.loss;
        });
    history_.validations.push_back({step(), loss.mean()});
    if (is_best) RL_RETURN_IF_ERROR(SaveAdapter(fs::path(config().output) / "best"));
    if (hooks_.on_validation) hooks_.on_validation({step(), loss, is_best});
    return OkStatus();
  }

  Status WriteAdapter(const Adapter& adapter, const fs::path& folder) const {
    return model_.model->WriteAdapter(
        adapter, {.base = model_.file.name, .names = config().hf_prefix, .rslora = config().rslora},
        folder.string());
  }

  Status SaveAdapter(const fs::path& folder) {
    RL_ASSIGN_OR_RETURN(const Adapter adapter, setup_.CurrentAdapter());
    return ReplaceFolder(
        folder, [&](const fs::path& temporary) { return WriteAdapter(adapter, temporary); });
  }

  Status SaveCheckpoint() {
    const fs::path folder = fs::path(config().output) / CheckpointName(step());
    if (IsFirst()) {
      RL_RETURN_IF_ERROR(WriteCheckpoint(folder));
      RL_RETURN_IF_ERROR(DrawLosses());
    }
    if (hooks_.on_saved) hooks_.on_saved(folder.string());
    return OkStatus();
  }

  Status DrawLosses() const {
    if (history_.steps.empty()) return OkStatus();
    RL_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(fs::path(config().output) / kLossPlot));
    const std::string svg = drawing::SvgFile(LossPlot(history_));
    RL_RETURN_IF_ERROR(file.Append(std::as_bytes(std::span(svg))));
    return file.Commit();
  }

  Status WriteCheckpoint(const fs::path& folder) {
    RL_ASSIGN_OR_RETURN(const Adapter adapter, setup_.CurrentAdapter());
    RunState state{.identity = Identity(),
                   .examples = static_cast<uint64_t>(step() * setup_.examples_of_step()),
                   .steps = steps(),
                   .history = history_};
    for (const std::string& name : trainer().parameters()) {
      RL_ASSIGN_OR_RETURN(state.m[name], trainer().Read(FirstMomentOf(name)));
      RL_ASSIGN_OR_RETURN(state.v[name], trainer().Read(SecondMomentOf(name)));
    }
    const auto fill = [&](const fs::path& temporary) -> Status {
      RL_RETURN_IF_ERROR(WriteAdapter(adapter, temporary));
      RL_RETURN_IF_ERROR(WriteRunSettings(model_.config(), setup_.backend(), temporary));
      return WriteRunState(state, temporary);
    };
    return ReplaceFolder(folder, fill);
  }

  Result<FineTuneResult> Finish() {
    FineTuneResult result{.step = step(), .history = history_, .folder = config().output};
    const bool trained = !options_.test_only && step() == steps() && !IsValidationDue();
    if (trained && IsFirst()) {
      RL_ASSIGN_OR_RETURN(const Adapter adapter, setup_.CurrentAdapter());
      RL_RETURN_IF_ERROR(WriteAdapter(adapter, config().output));
    }
    if ((trained || options_.test_only) && IsFirst()) {
      RL_ASSIGN_OR_RETURN(result.test, LossOf(setup_.test(), config().test_batches));
    }
    const bool is_done =
        (trained || options_.test_only) && (setup_.test().empty() || !IsCancelled());
    result.cancelled = !is_done;
    return result;
  }

  const LoadedModel& model_;
  const FineTuneOptions& options_;
  const FineTuneHooks& hooks_;
  Notices& notices_;
  TrainingSetup setup_;
  LossHistory history_;
  bool last_ = false;  // the step of the group that was done last ends the run
};

}  // namespace

Result<FineTuneResult> FineTuneModel(const LoadedModel& model, const FineTuneOptions& options,
                                     const std::vector<std::string>& plugin_paths,
                                     const FineTuneHooks& hooks, const HostHooks& host,
                                     Notices& notices) {
  return FineTuning(model, options, hooks, host, notices).Run(plugin_paths);
}

Result<FineTuneResult> FineTune(const EngineOptions& engine, const FineTuneOptions& options,
                                const FineTuneHooks& hooks) {
  LoggedNotices notices(engine);
  RL_ASSIGN_OR_RETURN(LayeredConfig config, ConfigOf(engine));
  if (!options.resume.empty()) {
    RL_RETURN_IF_ERROR(ApplyRunSettings(options.resume, config));
    RL_RETURN_IF_ERROR(config.Finish());
  }
  RL_ASSIGN_OR_RETURN(const LoadedModel model, LoadModel(std::move(config), {}, notices));
  return FineTuneModel(model, options, engine.plugin_paths, hooks, {}, notices);
}

}  // namespace rullama
