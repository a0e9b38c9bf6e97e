#include "engine/training/fine_tune.h"

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "core/base/mmap_file.h"
#include "core/base/size_text.h"
#include "core/gguf/atomic_file.h"
#include "core/safetensors/safetensors.h"
#include "engine/backend_setup.h"
#include "engine/training/checkpoint.h"
#include "engine/training/data_set.h"
#include "engine/training/example_order.h"
#include "engine/training/learning_rate.h"
#include "engine/training/new_adapter.h"

namespace rullama {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using ExampleRefs = std::vector<const Example*>;

// A set of examples and a hash of the file that they come from.
struct LoadedData {
  DataSet set;
  std::string hash;
};

std::string HashOf(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class FineTuning {
 public:
  FineTuning(const LoadedModel& model, const FineTuneOptions& options, const FineTuneHooks& hooks,
             const HostHooks& host, Notices& notices)
      : model_(model), options_(options), hooks_(hooks), host_(host), notices_(notices) {
    // A cancelled step would leave the adapter half changed, so work in plugins runs to its end.
    host_.cancelled = nullptr;
  }
  ~FineTuning() {
    trainer_.reset();
    devices_.devices.clear();
    if (registry_) registry_->Shutdown();
  }
  FineTuning(const FineTuning&) = delete;
  FineTuning& operator=(const FineTuning&) = delete;

  Result<FineTuneResult> Run() {
    RL_RETURN_IF_ERROR(CheckOptions());
    RL_RETURN_IF_ERROR(LoadData());
    RL_RETURN_IF_ERROR(ChooseAdapter());
    if (writes_adapter()) RL_RETURN_IF_ERROR(MakeFolder(config().output));
    RL_RETURN_IF_ERROR(OpenTrainer());
    RL_RETURN_IF_ERROR(FillAdapter());
    if (!options_.dump_gradients.empty()) return DumpGradients();
    if (!options_.test_only) RL_RETURN_IF_ERROR(Train());
    return Finish();
  }

 private:
  [[nodiscard]] const TrainingConfig& config() const { return model_.config().training; }
  [[nodiscard]] bool writes_adapter() const {
    return !options_.test_only && options_.dump_gradients.empty();
  }
  [[nodiscard]] int64_t examples_of_step() const {
    return config().batch_size * config().grad_accumulation_steps;
  }

  [[nodiscard]] Status CheckOptions() const {
    if (model_.facts().denoises()) {
      return MakeError(ErrorKind::kModelFile, "train.model",
                       "this model denoises canvases, expected one that predicts the next token");
    }
    if (config().epochs && config().iters) {
      return MakeError(ErrorKind::kUsage, "train.option",
                       "both training.epochs and training.iters are given, expected one of them");
    }
    if (!config().data) {
      return MakeError(ErrorKind::kUsage, "train.option",
                       "no examples are given; use --data FILE or training.data");
    }
    if (!model_.adapters.pairs.empty()) {
      return MakeError(
          ErrorKind::kUsage, "train.option",
          "model.adapters (--lora) are given, expected none; --adapter-init begins with "
          "an adapter");
    }
    const auto& backend = model_.config().backend.options;
    if (const auto bits = backend.find("activations");
        bits != backend.end() && bits->second == "int8") {
      return MakeError(ErrorKind::kUsage, "train.option",
                       "backend.options.activations is int8, whose rounding spoils gradients; "
                       "expected int16");
    }
    if (!options_.resume.empty() && !options_.first_adapter.empty()) {
      return MakeError(ErrorKind::kUsage, "train.option",
                       "both a checkpoint to resume and an adapter to begin with are given, "
                       "expected one of them");
    }
    return OkStatus();
  }

  Result<LoadedData> LoadFile(const fs::path& path) {
    LoadedData data;
    RL_ASSIGN_OR_RETURN(const MmapFile file, MmapFile::Open(path));
    data.hash = HashOf(file.bytes());
    const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()),
                                file.bytes().size());
    const DataOptions options{.train_on = config().train_on,
                              .raw = config().raw,
                              .thinking = model_.config().generation.thinking.value_or(false),
                              .on_long = config().on_long,
                              .max_tokens = config().max_seq_length,
                              .strict = config().strict};
    RL_ASSIGN_OR_RETURN(
        data.set, ParseDataSet(text, path.string(), *model_.model, *model_.tokenizer, options));
    notices_.Note(fmt::format("'{}': {}", path.string(), data.set.Describe()));
    return data;
  }

  Status LoadData() {
    const fs::path given = *config().data;
    const bool folder = fs::is_directory(given);
    RL_ASSIGN_OR_RETURN(data_, LoadFile(folder ? given / "train.jsonl" : given));
    const auto optional_file = [&](const char* name, std::vector<Example>& examples) -> Status {
      if (!folder || !fs::exists(given / name)) return OkStatus();
      RL_ASSIGN_OR_RETURN(LoadedData data, LoadFile(given / name));
      examples = std::move(data.set.examples);
      return OkStatus();
    };
    RL_RETURN_IF_ERROR(optional_file("valid.jsonl", validation_));
    RL_RETURN_IF_ERROR(optional_file("test.jsonl", test_));
    std::vector<Example>& train = data_.set.examples;
    if (validation_.empty() && config().val_split > 0) {
      const auto count =
          static_cast<size_t>(std::ceil(config().val_split * static_cast<double>(train.size())));
      const size_t kept = train.size() - std::min(count, train.size() - 1);
      validation_.assign(train.begin() + static_cast<ptrdiff_t>(kept), train.end());
      train.resize(kept);
    }
    const auto size = static_cast<double>(train.size());
    const auto per_step = static_cast<double>(examples_of_step());
    steps_ = config().iters.value_or(static_cast<int64_t>(
        std::ceil(size * static_cast<double>(config().epochs.value_or(1)) / per_step)));
    return OkStatus();
  }

  Status ChooseAdapter() {
    RL_ASSIGN_OR_RETURN(weights_, ChooseWeights(*model_.model, config()));
    for (const AdaptableWeight& weight : weights_) {
      RL_ASSIGN_OR_RETURN(LowRankPair pair, PairOf(weight, config()));
      pairs_.push_back(std::move(pair));
    }
    return OkStatus();
  }

  // The most rows that a step of the device has.
  [[nodiscard]] int64_t MaxRows() const {
    int64_t longest = 0;
    for (const auto* set : {&data_.set.examples, &validation_, &test_}) {
      for (const Example& example : *set) longest = std::max(longest, example.rows());
    }
    return std::min(config().max_seq_length, longest * examples_of_step());
  }

  Status OpenTrainer() {
    const Config& all = model_.config();
    registry_ = MakeRegistry(all, options_.plugin_paths, host_);
    RL_ASSIGN_OR_RETURN(devices_, OpenDevices(*registry_, all, host_, notices_));
    devices_.policy.host_weights = all.placement.host_weights.value_or(model_.facts().host_tables);
    RL_RETURN_IF_ERROR(model_.file.file->CheckUnchanged());
    TrainerOptions options{.devices = devices_.Borrow(),
                           .policy = devices_.policy,
                           .pairs = pairs_,
                           .adamw = {.beta1 = config().beta1,
                                     .beta2 = config().beta2,
                                     .epsilon = config().epsilon,
                                     .weight_decay = config().weight_decay},
                           .max_grad_norm = config().max_grad_norm,
                           .slots = examples_of_step(),
                           .max_rows = MaxRows(),
                           .checkpoint = config().grad_checkpoint.value_or(false)};
    RL_ASSIGN_OR_RETURN(trainer_, Trainer::Create(*model_.model, *model_.file.file, options));
    RL_ASSIGN_OR_RETURN(MemoryNeed need, trainer_->PredictMemory());
    const uint64_t room = devices_.main().description().memory_free;
    if (!config().grad_checkpoint && room > 0 && need.total() > room) {
      options.checkpoint = true;
      RL_ASSIGN_OR_RETURN(trainer_, Trainer::Create(*model_.model, *model_.file.file, options));
      RL_ASSIGN_OR_RETURN(need, trainer_->PredictMemory());
    }
    notices_.Note(fmt::format(
        "training needs {} on the device: weights {}, adapter and its optimizer {}, activations of "
        "{} rows {}{}",
        SizeText(need.total()), SizeText(need.weights), SizeText(need.states), options.max_rows,
        SizeText(need.work), options.checkpoint ? ", computed again layer by layer" : ""));
    return trainer_->Start();
  }

  // The values of A and B, and of the moments when a run goes on.
  Status FillAdapter() {
    std::string from = options_.resume.empty() ? options_.first_adapter : options_.resume;
    if (from.empty() && options_.test_only) from = config().output;
    if (from.empty()) {
      for (size_t i = 0; i < pairs_.size(); ++i) {
        RL_RETURN_IF_ERROR(trainer_->Write(
            pairs_[i].a, DrawA(weights_[i], pairs_[i].rank, static_cast<uint64_t>(config().seed))));
      }
      return OkStatus();
    }
    RL_RETURN_IF_ERROR(FillFromAdapter(from));
    if (options_.resume.empty()) return OkStatus();
    RL_ASSIGN_OR_RETURN(RunState state, ReadRunState(options_.resume, Identity()));
    step_ = state.step;
    best_loss_ = state.best_loss;
    for (const std::string& name : trainer_->parameters()) {
      RL_RETURN_IF_ERROR(trainer_->Write(FirstMomentOf(name), state.m[name]));
      RL_RETURN_IF_ERROR(trainer_->Write(SecondMomentOf(name), state.v[name]));
    }
    return OkStatus();
  }

  Status FillFromAdapter(const std::string& path) {
    RL_ASSIGN_OR_RETURN(const Adapter adapter, model_.model->ReadAdapter(path));
    for (const LowRankPair& pair : pairs_) {
      const auto found = std::ranges::find(adapter.weights, pair.weight, &AdapterWeight::tensor);
      const bool fits = found != adapter.weights.end() && found->rank == pair.rank &&
                        static_cast<float>(found->scale) == pair.scale;
      if (!fits) {
        return MakeError(ErrorKind::kUsage, "train.resume",
                         "the adapter '{}' has {} for '{}', expected rank {} and factor {}, as "
                         "training.rank, training.alpha and training.targets say",
                         path,
                         found == adapter.weights.end()
                             ? std::string("nothing")
                             : fmt::format("rank {} and factor {}", found->rank, found->scale),
                         pair.weight, pair.rank, pair.scale);
      }
      RL_RETURN_IF_ERROR(trainer_->Write(pair.a, found->a));
      RL_RETURN_IF_ERROR(trainer_->Write(pair.b, found->b));
    }
    if (adapter.weights.size() == pairs_.size()) return OkStatus();
    return MakeError(ErrorKind::kUsage, "train.resume",
                     "the adapter '{}' changes {} weights, expected the {} of training.targets",
                     path, adapter.weights.size(), pairs_.size());
  }

  // Settings that must not change between a checkpoint and the run that goes on from it.
  [[nodiscard]] RunIdentity Identity() const {
    const TrainingConfig& c = config();
    const auto text = [](const auto& value) { return fmt::format("{}", value); };
    const LearningRate rate = LearningRateOf(c, steps_);
    return {{"model", HashOf(model_.file.file->bytes())},
            {"data", data_.hash},
            {"backend", devices_.backend},
            {"rank", text(c.rank)},
            {"alpha", text(c.alpha)},
            {"weights", text(pairs_.size())},
            {"steps", text(steps_)},
            {"warmup_steps", text(rate.warmup)},
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
            {"val_split", text(c.val_split)}};
  }

  [[nodiscard]] bool IsCancelled() const { return hooks_.cancelled && hooks_.cancelled->load(); }

  Status Train() {
    const LearningRate rates = LearningRateOf(config(), steps_);
    ExampleOrder order(data_.set.examples.size(), static_cast<uint64_t>(config().seed),
                       config().shuffle);
    if (step_ == 0) RL_RETURN_IF_ERROR(Validate());
    TrainingReport report{.steps = steps_};
    auto started = Clock::now();
    while (step_ < steps_ && !IsCancelled()) {
      const ExampleRefs examples = ExamplesOf(step_, order);
      report.rate = rates.At(step_);
      RL_ASSIGN_OR_RETURN(const StepResult result, trainer_->Step(examples, step_, report.rate));
      report.step = ++step_;
      last_ = result.loss;
      report.loss.sum += result.loss.sum;
      report.loss.tokens += result.loss.tokens;
      report.rows += result.rows;
      report.norm = result.norm;
      if (step_ % config().steps_per_report == 0 || step_ == steps_) {
        report.seconds = SecondsSince(started);
        if (hooks_.on_report) hooks_.on_report(report);
        report = {.steps = steps_};
        started = Clock::now();
      }
      const bool ends = step_ == steps_;
      if (step_ % config().steps_per_eval == 0 || ends) RL_RETURN_IF_ERROR(Validate());
      if (step_ % config().save_every == 0 && !ends) RL_RETURN_IF_ERROR(SaveCheckpoint());
    }
    return SaveCheckpoint();
  }

  ExampleRefs ExamplesOf(int64_t step, ExampleOrder& order) const {
    ExampleRefs examples;
    for (int64_t i = 0; i < examples_of_step(); ++i) {
      const auto k = static_cast<uint64_t>(step * examples_of_step() + i);
      examples.push_back(&data_.set.examples[order.At(k)]);
    }
    return examples;
  }

  Result<LossSum> LossOf(const std::vector<Example>& set) {
    LossSum loss;
    const auto most = static_cast<size_t>(examples_of_step());
    for (size_t begin = 0; begin < set.size(); begin += most) {
      ExampleRefs examples;
      for (size_t i = begin; i < std::min(begin + most, set.size()); ++i) {
        examples.push_back(&set[i]);
      }
      RL_ASSIGN_OR_RETURN(const LossSum part, trainer_->Evaluate(examples));
      loss.sum += part.sum;
      loss.tokens += part.tokens;
    }
    return loss;
  }

  Status Validate() {
    if (validation_.empty()) return OkStatus();
    RL_ASSIGN_OR_RETURN(const LossSum loss, LossOf(validation_));
    const bool is_best = step_ > 0 && (best_loss_ == 0 || loss.mean() < best_loss_);
    if (is_best) {
      best_loss_ = loss.mean();
      RL_RETURN_IF_ERROR(SaveAdapter(fs::path(config().output) / "best"));
    }
    if (hooks_.on_validation) hooks_.on_validation({step_, loss, is_best});
    return OkStatus();
  }

  Result<Adapter> CurrentAdapter() {
    Adapter adapter;
    for (const LowRankPair& pair : pairs_) {
      AdapterWeight weight{.tensor = pair.weight,
                           .rank = pair.rank,
                           .inputs = pair.inputs,
                           .outputs = pair.outputs,
                           .scale = config().alpha / static_cast<double>(config().rank),
                           .a = {},
                           .b = {}};
      RL_ASSIGN_OR_RETURN(weight.a, trainer_->Read(pair.a));
      RL_ASSIGN_OR_RETURN(weight.b, trainer_->Read(pair.b));
      adapter.weights.push_back(std::move(weight));
    }
    return adapter;
  }

  Status SaveAdapter(const fs::path& folder) {
    RL_ASSIGN_OR_RETURN(const Adapter adapter, CurrentAdapter());
    return ReplaceFolder(folder, [&](const fs::path& temporary) {
      return model_.model->WriteAdapter(adapter, model_.file.name, temporary.string());
    });
  }

  Status SaveCheckpoint() {
    RL_ASSIGN_OR_RETURN(const Adapter adapter, CurrentAdapter());
    RunState state{.identity = Identity(),
                   .step = step_,
                   .examples = static_cast<uint64_t>(step_ * examples_of_step()),
                   .best_loss = best_loss_};
    for (const std::string& name : trainer_->parameters()) {
      RL_ASSIGN_OR_RETURN(state.m[name], trainer_->Read(FirstMomentOf(name)));
      RL_ASSIGN_OR_RETURN(state.v[name], trainer_->Read(SecondMomentOf(name)));
    }
    const fs::path folder = fs::path(config().output) / CheckpointName(step_);
    const auto fill = [&](const fs::path& temporary) -> Status {
      RL_RETURN_IF_ERROR(model_.model->WriteAdapter(adapter, model_.file.name, temporary.string()));
      return WriteRunState(state, temporary);
    };
    RL_RETURN_IF_ERROR(ReplaceFolder(folder, fill));
    if (hooks_.on_saved) hooks_.on_saved(folder.string());
    return OkStatus();
  }

  Result<FineTuneResult> Finish() {
    FineTuneResult result{.step = step_, .last = last_, .folder = config().output};
    result.cancelled = step_ < steps_ && !options_.test_only;
    if (!options_.test_only && !result.cancelled) {
      RL_ASSIGN_OR_RETURN(const Adapter adapter, CurrentAdapter());
      RL_RETURN_IF_ERROR(model_.model->WriteAdapter(adapter, model_.file.name, config().output));
    }
    if (result.cancelled) return result;
    if (options_.test_only && test_.empty()) {
      return MakeError(ErrorKind::kUsage, "train.option",
                       "there is no test set; expected test.jsonl in the folder of --data");
    }
    RL_ASSIGN_OR_RETURN(result.test, LossOf(test_));
    return result;
  }

  Result<FineTuneResult> DumpGradients() {
    ExampleOrder order(data_.set.examples.size(), static_cast<uint64_t>(config().seed),
                       config().shuffle);
    FineTuneResult result{.step = step_, .last = {}, .folder = options_.dump_gradients};
    RL_ASSIGN_OR_RETURN(result.last, trainer_->AddGradients(ExamplesOf(step_, order)));
    std::vector<std::vector<float>> values;
    std::vector<SafetensorsOutput> tensors;
    const auto add = [&](const std::string& name, const TensorType& type) -> Status {
      RL_ASSIGN_OR_RETURN(std::vector<float> gradient, trainer_->Read(GradientOf(name)));
      values.push_back(std::move(gradient));
      tensors.push_back(
          {name, {type.dim(0).constant, type.dim(1).constant}, std::span<const float>()});
      return OkStatus();
    };
    for (const LowRankPair& pair : pairs_) {
      RL_RETURN_IF_ERROR(add(pair.a, pair.AType()));
      RL_RETURN_IF_ERROR(add(pair.b, pair.BType()));
    }
    for (size_t i = 0; i < tensors.size(); ++i) tensors[i].values = values[i];
    RL_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(options_.dump_gradients));
    RL_RETURN_IF_ERROR(file.Append(EncodeSafetensors(std::move(tensors), {})));
    RL_RETURN_IF_ERROR(file.Commit());
    return result;
  }

  const LoadedModel& model_;
  const FineTuneOptions& options_;
  const FineTuneHooks& hooks_;
  HostHooks host_;
  Notices& notices_;
  LoadedData data_;  // to train on
  std::vector<Example> validation_;
  std::vector<Example> test_;
  int64_t steps_ = 0;
  std::vector<AdaptableWeight> weights_;
  std::vector<LowRankPair> pairs_;  // of the weights
  // Declared in the order they depend on each other.
  std::unique_ptr<Registry> registry_;
  BackendDevices devices_;
  std::unique_ptr<Trainer> trainer_;
  int64_t step_ = 0;  // that were done
  LossSum last_;
  double best_loss_ = 0;
};

}  // namespace

Result<FineTuneResult> FineTune(const LoadedModel& model, const FineTuneOptions& options,
                                const FineTuneHooks& hooks, const HostHooks& host,
                                Notices& notices) {
  return FineTuning(model, options, hooks, host, notices).Run();
}

}  // namespace rullama
