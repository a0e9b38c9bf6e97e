// rullama finetune: trains a low-rank adapter of a model on examples.
#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "cli/commands/command.h"
#include "cli/commands/json_text.h"
#include "cli/commands/loading.h"
#include "cli/commands/options.h"
#include "cli/reports/trace.h"
#include "cli/terminal/signals.h"
#include "engine/training/fine_tune.h"
#include "engine/training/gradients.h"
#include "engine/training/run_settings.h"

namespace rullama::cli {
namespace {

struct FinetuneFlags {
  TraceFlags trace;
  ConfigFlags config;
  FineTuneOptions options;
  std::string dump_gradients;  // a safetensors file
  bool json = false;
};

struct TrainingFlag {
  const char* names;
  const char* key;  // of the block `training`
  const char* help;
  const char* group;
  const char* value = "V";
};

constexpr const char* kAdapter = "Adapter";
constexpr const char* kData = "Examples";
constexpr const char* kSteps = "Steps";
constexpr const char* kOptimizer = "Optimizer";

constexpr TrainingFlag kTrainingFlags[] = {
    {"--data,--train-file", "data",
     "Examples: a file of JSON lines or of one JSON list, or a folder of train.jsonl", kData,
     "FILE|FOLDER"},
    {"-o,--adapter-path,--output-file,--output", "output",
     "Folder for the adapter and its checkpoints", kAdapter, "FOLDER"},
    {"--rank,--lora-rank", "rank", "Rank of the adapter", kAdapter},
    {"--alpha,--lora-alpha", "alpha", "B (A x) counts alpha / rank", kAdapter},
    {"--hf-prefix", "hf_prefix", "Names in the file for PEFT: text, or multimodal", kAdapter},
    {"--num-layers", "num_layers", "The last layers that get adapters; -1: all", kAdapter},
    {"--lr,--learning-rate", "learning_rate", "Learning rate after the warm-up", kOptimizer},
    {"--lr-min,--learning-rate-min,--min-learning-rate", "min_learning_rate",
     "Learning rate at the end of the schedule", kOptimizer},
    {"--lr-schedule,--schedule", "schedule", "How the learning rate falls", kOptimizer},
    {"--warmup,--warmup-steps", "warmup_steps", "Steps in which the learning rate rises",
     kOptimizer},
    {"--weight-decay", "weight_decay", "Decay of the adapter's values", kOptimizer},
    {"--max-grad-norm", "max_grad_norm", "Larger gradients are scaled down to it; 0: never",
     kOptimizer},
    {"--epochs", "epochs", "Passes over the examples", kSteps},
    {"--iters", "iters", "Optimizer steps, instead of epochs", kSteps},
    {"--batch-size", "batch_size", "Examples of a batch", kSteps},
    {"--grad-accumulation-steps", "grad_accumulation_steps", "Batches of an optimizer step",
     kSteps},
    {"--max-seq-length", "max_seq_length", "Tokens of the longest example", kData},
    {"-s,--seed", "seed", "Decides the first adapter and the order of the examples", kSteps},
    {"--train-on", "train_on", "The tokens of a conversation to learn", kData},
    {"--on-long", "on_long", "What happens to examples that are too long", kData},
    {"--val-split", "val_split", "Part of the examples kept for validation", kData},
    {"--chat-key,--chat-feature", "chat_key", "Member of a line with a conversation", kData},
    {"--prompt-key,--prompt-feature", "prompt_key", "Member of a line with a prompt", kData},
    {"--completion-key,--completion-feature", "completion_key", "Member with its completion",
     kData},
    {"--text-key,--text-feature", "text_key", "Member of a line with a plain text", kData},
    {"--steps-per-report", "steps_per_report", "Steps between two lines about the loss", kSteps},
    {"--steps-per-eval", "steps_per_eval", "Steps between two validations", kSteps},
    {"--val-batches", "val_batches", "Batches of a validation; -1: all", kSteps},
    {"--test-batches", "test_batches", "Batches of the test; -1: all", kSteps},
    {"--save-every", "save_every", "Steps between two checkpoints", kSteps},
};

struct TrainingSwitch {
  const char* names;
  const char* key;
  const char* value;
  const char* help;
  const char* group;
};
constexpr TrainingSwitch kTrainingSwitches[] = {
    {"--rslora", "rslora", "true", "B (A x) counts alpha / sqrt(rank)", kAdapter},
    {"--raw", "raw", "true", "Prompts and completions are texts, without the chat template", kData},
    {"--strict", "strict", "true", "An example without a token to learn is an error", kData},
    {"--no-shuffle", "shuffle", "false", "Examples in the order of the file", kSteps},
    {"--mask-prompt", "train_on", "assistant", "Learn answers only, the default", kData},
    {"--no-mask-prompt", "train_on", "all", "Learn every token after BOS", kData},
    {"--grad-checkpoint", "grad_checkpoint", "true",
     "Compute activations again instead of keeping them", kSteps},
    {"--no-grad-checkpoint", "grad_checkpoint", "false", "Keep all activations", kSteps},
};

void AddTrainingOptions(CLI::App& command, FinetuneFlags& flags) {
  for (const TrainingFlag& flag : kTrainingFlags) {
    AddSetting(command, flags.config, flag.names, std::string("training.") + flag.key, flag.help)
        ->option_text(flag.value)
        ->group(flag.group);
  }
  for (const TrainingSwitch& flag : kTrainingSwitches) {
    command
        .add_flag_callback(
            flag.names,
            [&flags, flag] {
              flags.config.settings.push_back(
                  {std::string("training.") + flag.key, flag.value, flag.names});
            },
            flag.help)
        ->group(flag.group);
  }
  command
      .add_option("--lora-targets", flags.config.training_targets,
                  "attn, mlp, all, or names of projections with commas between [default all]")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->option_text("LIST")
      ->group(kAdapter);
  command
      .add_option("--resume", flags.options.resume,
                  "Checkpoint to continue from, or the folder of a run: its newest; needs no other "
                  "option, and takes other --iters or --epochs")
      ->option_text("FOLDER")
      ->group(kSteps);
  command
      .add_option("--adapter-init,--resume-adapter-file", flags.options.first_adapter,
                  "Adapter to begin with, instead of a new one")
      ->option_text("FILE")
      ->group(kAdapter);
  command
      .add_option("--dump-gradients", flags.dump_gradients,
                  "Write the gradients of the first step and end")
      ->option_text("FILE")
      ->excludes("--resume")
      ->group(kSteps);
  command
      .add_flag("--overwrite", flags.options.overwrite,
                "Replace a run that the output folder has, checkpoints and all")
      ->group(kAdapter);
  command.add_flag("--test", flags.options.test_only, "Only the loss of test.jsonl")->group(kData);
}

nlohmann::json AsJson(const LossSum& loss) {
  return {{"loss", loss.mean()}, {"perplexity", std::exp(loss.mean())}, {"tokens", loss.tokens}};
}

double TokensPerSecond(const TrainingReport& report) {
  return static_cast<double>(report.rows) / std::max(report.seconds, 1e-9);
}

// "45 s", "12 min", "3.5 h".
std::string TimeText(double seconds) {
  constexpr double kMinute = 60;
  constexpr double kHour = 3600;
  if (seconds < 2 * kMinute) return fmt::format("{:.0f} s", seconds);
  if (seconds < 2 * kHour) return fmt::format("{:.0f} min", seconds / kMinute);
  return fmt::format("{:.1f} h", seconds / kHour);
}

// Writes what happens to stdout, as lines of text or of JSON. The first error of stdout is kept.
class Reporter {
 public:
  Reporter(Console& console, bool as_json)
      : console_(console), as_json_(as_json), progress_(console, "training") {}

  [[nodiscard]] FineTuneHooks Hooks() {
    return {.on_step =
                [this](const TrainingReport& step) {
                  if (as_json_) Report(step);
                  ShowProgress(step);
                },
            .on_report =
                [this](const TrainingReport& report) {
                  if (!as_json_) Report(report);
                },
            .on_validation = [this](const ValidationReport& report) { Report(report); },
            .on_saved =
                [this](const std::string& folder) {
                  progress_.Clear();
                  console_.Note(fmt::format("wrote the checkpoint '{}'", folder));
                },
            .cancelled = CancelFlag()};
  }
  [[nodiscard]] const Status& status() const { return status_; }

  void End(const FineTuneResult& result) {
    if (as_json_) {
      nlohmann::json line = {{"type", "final"}, {"step", result.step}, {"folder", result.folder}};
      if (!result.history.steps.empty()) line["loss"] = result.history.steps.back();
      if (result.test.tokens > 0) line["test"] = AsJson(result.test);
      return Write(JsonLine(line));
    }
    if (result.test.tokens > 0) {
      Write(fmt::format("test loss {:.4f}, perplexity {:.4f} over {} tokens\n", result.test.mean(),
                        std::exp(result.test.mean()), result.test.tokens));
    }
  }

 private:
  // Reports are the progress where nothing can be drawn.
  void ShowProgress(const TrainingReport& step) {
    if (!console_.stderr_draws()) return;
    ++steps_;
    seconds_ += step.seconds;
    const double left =
        seconds_ / static_cast<double>(steps_) * static_cast<double>(step.steps - step.step);
    progress_.Update(step.step, step.steps,
                     fmt::format(", loss {:.3f}, {:.0f} tokens/s, {} left", step.loss.mean(),
                                 TokensPerSecond(step), TimeText(left)));
  }

  void Write(const std::string& text) {
    progress_.Clear();
    if (status_) status_ = console_.Write(text);
  }

  void Report(const TrainingReport& report) {
    const double speed = TokensPerSecond(report);
    if (as_json_) {
      nlohmann::json line = AsJson(report.loss);
      line.update({{"type", "train"},
                   {"step", report.step},
                   {"steps", report.steps},
                   {"grad_norm", report.norm},
                   {"learning_rate", report.rate},
                   {"tokens_per_second", speed}});
      return Write(JsonLine(line));
    }
    Write(fmt::format(
        "step {}/{}: loss {:.4f}, gradient {:.3g}, learning rate {:.3g}, {:.0f} "
        "tokens/s\n",
        report.step, report.steps, report.loss.mean(), report.norm, report.rate, speed));
  }

  void Report(const ValidationReport& report) {
    if (as_json_) {
      nlohmann::json line = AsJson(report.loss);
      line.update({{"type", "validation"}, {"step", report.step}, {"best", report.is_best}});
      return Write(JsonLine(line));
    }
    Write(fmt::format("step {}: validation loss {:.4f}, perplexity {:.4f}{}\n", report.step,
                      report.loss.mean(), std::exp(report.loss.mean()),
                      report.is_best ? ", the best so far" : ""));
  }

  Console& console_;
  bool as_json_;
  Progress progress_;
  int64_t steps_ = 0;  // of this process
  double seconds_ = 0;
  Status status_;
};

Result<int> DumpGradients(const FinetuneFlags& flags, const ConfiguredModel& loaded,
                          const HostHooks& host, Console& console) {
  TrainingSetup setup(loaded.model, loaded.model.config(), host, console);
  RL_RETURN_IF_ERROR(setup.Read());
  RL_RETURN_IF_ERROR(setup.OpenTrainer(flags.config.plugins));
  RL_RETURN_IF_ERROR(flags.options.first_adapter.empty()
                         ? setup.DrawAdapter(/*with_b=*/false)
                         : setup.ReadAdapter(flags.options.first_adapter));
  RL_ASSIGN_OR_RETURN(const StepGradients gradients, GradientsOfStep(setup, 0));
  RL_RETURN_IF_ERROR(WriteGradients(gradients, flags.dump_gradients));
  console.Note(fmt::format("wrote '{}': gradients of {} tensors, loss {:.4f}", flags.dump_gradients,
                           gradients.parameters.size(), gradients.loss.mean()));
  return 0;
}

Result<int> Finetune(const FinetuneFlags& flags, TraceFile* trace, Console& console) {
  FinishWorkFirst("\nrullama: ending after this step, with a checkpoint; Ctrl-C again to quit\n");
  ConfigFlags config = flags.config;
  config.adjust = [&flags](LayeredConfig& layers) {
    return ApplyRunSettings(flags.options.resume, layers);
  };
  RL_ASSIGN_OR_RETURN(const ConfiguredModel loaded, LoadModel(config, console));
  HostHooks host = ProcessHooks(loaded.environment);
  host.observer = TraceOf(trace, "training");
  if (!flags.dump_gradients.empty()) return DumpGradients(flags, loaded, host, console);
  Reporter reporter(console, flags.json);
  RL_ASSIGN_OR_RETURN(const FineTuneResult result,
                      FineTuneModel(loaded.model, flags.options, flags.config.plugins,
                                    reporter.Hooks(), host, console));
  reporter.End(result);
  RL_RETURN_IF_ERROR(reporter.status());
  if (result.cancelled) {
    console.Note(fmt::format("stopped after step {}; continue with: rullama finetune --resume '{}'",
                             result.step, result.folder));
    return Terminated() ? kExitTerminated : kExitInterrupted;
  }
  if (!flags.options.test_only) console.Note(fmt::format("wrote '{}'", result.folder));
  return 0;
}

Result<int> FinetuneAndTrace(const FinetuneFlags& flags, Console& console) {
  RL_ASSIGN_OR_RETURN(const auto trace, TraceFile::Create(flags.trace));
  return TraceFile::Finish(trace, Finetune(flags, trace.get(), console));
}

}  // namespace

void AddFinetuneCommand(CLI::App& app, CommandContext& context) {
  const auto flags = std::make_shared<FinetuneFlags>();
  CLI::App* command = app.add_subcommand("finetune", "Train a low-rank adapter (LoRA) on examples");
  AddModelOptions(*command, flags->config);
  // They say how a model generates.
  for (const char* name : {"--ctx-size", "--prefill-chunk", "--cache-type-k", "--cache-type-v"}) {
    command->remove_option(command->get_option(name));
  }
  AddTrainingOptions(*command, *flags);
  command->add_flag("--json", flags->json, "Reports as JSON lines");
  AddTraceOptions(*command, flags->trace);
  command->alias("train");
  command->alias("lora");
  command->footer(R"(Examples:
  rullama finetune -m model.gguf --data chats.jsonl -o my-adapter
  rullama finetune -m model.gguf --data folder --iters 600 --lora-targets attn --rank 8
  rullama finetune --resume my-adapter
  rullama -m model.gguf --lora my-adapter -p "Hello")");
  command->callback([flags, &context] {
    context.action = [flags, &context] { return FinetuneAndTrace(*flags, context.console); };
  });
}

}  // namespace rullama::cli
