#include "engine/training/training_setup.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "core/base/mmap_file.h"
#include "core/base/size_text.h"
#include "core/config/device_name.h"
#include "engine/engine_observer.h"
#include "engine/training/checkpoint.h"

namespace rullama {
namespace {

namespace fs = std::filesystem;

// The tensors of a file, if it holds halves of pairs under the names of states
// (blk.0.attn_q.weight.lora_a), as --dump-gradients writes them; nothing for any other file.
Result<std::optional<SafetensorsFile>> OpenPairs(const std::string& path,
                                                 const std::vector<LowRankPair>& pairs) {
  if (!path.ends_with(".safetensors")) return std::nullopt;
  RL_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(path));
  for (const SafetensorsTensor& tensor : file.tensors()) {
    const bool half = std::ranges::any_of(pairs, [&tensor](const LowRankPair& pair) {
      return tensor.name == pair.a || tensor.name == pair.b;
    });
    if (half) return file;
  }
  return std::nullopt;
}

// The bytes that the activations of a step of `rows` rows may take before layers are computed again
// instead. A device with memory of its own gives them the largest of the weights' size, 512 MiB and
// 1 MiB for each row, about what a step of E2B needs at the least (2.2 GiB for 2,048 rows):
// computing a layer again costs at most a third of its time.
uint64_t MaxActivations(const DeviceDescription& device, const MemoryNeed& need, int64_t rows) {
  constexpr uint64_t kAlways = uint64_t{512} << 20, kRow = uint64_t{1} << 20;
  const uint64_t usual = std::max({need.weights, kAlways, static_cast<uint64_t>(rows) * kRow});
  const uint64_t others = need.weights + need.states;
  const uint64_t free_bytes = device.memory_free == 0 ? UINT64_MAX : device.memory_free;
  const uint64_t room = free_bytes - std::min(free_bytes, others);
  return device.type == RL_DEVICE_CPU ? room : std::min(room, usual);
}

}  // namespace

TrainingSetup::TrainingSetup(const LoadedModel& model, const Config& config, const HostHooks& host,
                             Notices& notices)
    : model_(model), config_(config), host_(host), notices_(notices) {
  // A cancelled step would leave the adapter half changed, so work in plugins runs to its end.
  host_.cancelled = nullptr;
}

TrainingSetup::~TrainingSetup() {
  trainer_.reset();
  devices_.devices.clear();
  if (registry_) registry_->Shutdown();
}

Status TrainingSetup::Read() {
  RL_RETURN_IF_ERROR(CheckSettings());
  RL_RETURN_IF_ERROR(LoadData());
  return ChooseAdapter();
}

Status TrainingSetup::CheckSettings() const {
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
  if (fs::path(config().output).extension() == ".gguf") {
    return MakeError(ErrorKind::kUsage, "train.option",
                     "training.output (-o) is '{}', a file; expected a folder, which gets "
                     "adapter.gguf, and `rullama export-lora` then makes a model of it",
                     config().output);
  }
  if (!model_.adapters.pairs.empty()) {
    return MakeError(ErrorKind::kUsage, "train.option",
                     "model.adapters (--lora) are given, expected none; --adapter-init begins with "
                     "an adapter");
  }
  const CacheTypes types = KvDtypeFor(config_, config_.backend.name);
  if (IsBlockType(types.keys) || IsBlockType(types.values)) {
    return MakeError(ErrorKind::kUsage, "train.option",
                     "context.kv_dtype is {}; training computes keys and values in f32, as blocks "
                     "have no gradients; leave it at auto",
                     ToString(types));
  }
  const auto backend = OptionsOf(config_.backend, 0);
  if (const auto bits = backend.find("activations");
      bits != backend.end() && bits->second == "int8") {
    return MakeError(ErrorKind::kUsage, "train.option",
                     "backend.options.activations is int8, whose rounding spoils gradients; "
                     "expected int16");
  }
  return OkStatus();
}

Result<TrainingSetup::LoadedData> TrainingSetup::LoadFile(const fs::path& path) {
  RL_ASSIGN_OR_RETURN(const MmapFile file, MmapFile::Open(path));
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()),
                              file.bytes().size());
  const DataOptions options{.train_on = config().train_on,
                            .raw = config().raw,
                            .thinking = config_.generation.thinking.value_or(false),
                            .on_long = config().on_long,
                            .max_tokens = config().max_seq_length,
                            .strict = config().strict,
                            .keys = {.messages = config().chat_key,
                                     .prompt = config().prompt_key,
                                     .completion = config().completion_key,
                                     .text = config().text_key}};
  RL_ASSIGN_OR_RETURN(DataSet set,
                      ParseDataSet(text, path.string(), *model_.model, *model_.tokenizer, options));
  notices_.Note(fmt::format("'{}': {}; {}", path.string(), set.Describe(),
                            set.DescribeFirst(*model_.tokenizer)));
  return LoadedData{std::move(set.examples), HashOf(file.bytes())};
}

Status TrainingSetup::LoadData() {
  const fs::path given = *config().data;
  const bool folder = fs::is_directory(given);
  RL_ASSIGN_OR_RETURN(LoadedData data, LoadFile(folder ? given / "train.jsonl" : given));
  train_ = std::move(data.examples);
  data_hash_ = std::move(data.hash);
  const auto optional_file = [&](const char* name, std::vector<Example>& examples) -> Status {
    if (!folder || !fs::exists(given / name)) return OkStatus();
    RL_ASSIGN_OR_RETURN(LoadedData more, LoadFile(given / name));
    examples = std::move(more.examples);
    return OkStatus();
  };
  RL_RETURN_IF_ERROR(optional_file("valid.jsonl", validation_));
  RL_RETURN_IF_ERROR(optional_file("test.jsonl", test_));
  if (validation_.empty() && config().val_split > 0) SplitValidation();
  notices_.Note(fmt::format(
      "{} examples to train on, {} to validate with{}", train_.size(), validation_.size(),
      test_.empty() ? std::string() : fmt::format(", {} to test with", test_.size())));
  order_ = std::make_unique<ExampleOrder>(train_.size(), static_cast<uint64_t>(config().seed),
                                          config().shuffle);
  const auto size = static_cast<double>(train_.size());
  const auto per_step = static_cast<double>(examples_of_step());
  steps_ = config().iters.value_or(static_cast<int64_t>(
      std::ceil(size * static_cast<double>(config().epochs.value_or(1)) / per_step)));
  return OkStatus();
}

// Takes the last examples out of those to train on.
void TrainingSetup::SplitValidation() {
  const auto count =
      static_cast<size_t>(std::ceil(config().val_split * static_cast<double>(train_.size())));
  const size_t kept = train_.size() - std::min(count, train_.size() - 1);
  validation_.assign(train_.begin() + static_cast<ptrdiff_t>(kept), train_.end());
  train_.resize(kept);
}

Status TrainingSetup::ChooseAdapter() {
  RL_ASSIGN_OR_RETURN(weights_, ChooseWeights(*model_.model, config()));
  pairs_.reserve(weights_.size());
  for (const AdaptableWeight& weight : weights_) {
    RL_ASSIGN_OR_RETURN(LowRankPair pair, PairOf(weight, config()));
    pairs_.push_back(std::move(pair));
  }
  return OkStatus();
}

// The most rows that a step of the device has, and the most of them with a target.
Extents TrainingSetup::MaxExtents() const {
  Extents most;
  for (const auto* set : {&train_, &validation_, &test_}) {
    for (const Example& example : *set) {
      most.t = std::max(most.t, example.rows());
      most.r = std::max(most.r, example.counted());
    }
  }
  most.t = std::min(config().max_seq_length, most.t * examples_of_step());
  most.r = std::min(most.t, most.r * examples_of_step());
  return most;
}

TrainerOptions TrainingSetup::OptionsOfTrainer() const {
  const Extents most = MaxExtents();
  return {.devices = devices_.Borrow(),
          .policy = devices_.policy,
          .pairs = pairs_,
          .adamw = {.beta1 = config().beta1,
                    .beta2 = config().beta2,
                    .epsilon = config().epsilon,
                    .weight_decay = config().weight_decay},
          .max_grad_norm = config().max_grad_norm,
          .slots = examples_of_step(),
          .max_t = most.t,
          .max_r = most.r,
          .observer = host_.observer};
}

Status TrainingSetup::OpenTrainer(const std::vector<std::string>& plugin_paths,
                                  TrainingGroup* group) {
  registry_ = MakeRegistry(config_, plugin_paths, host_);
  RL_ASSIGN_OR_RETURN(devices_, OpenDevices(*registry_, config_, host_, notices_));
  RL_RETURN_IF_ERROR(CheckOneDevice(devices_, "fine-tuning"));
  devices_.policy.host_weights =
      config_.placement.host_weights.value_or(model_.facts().host_tables);
  RL_RETURN_IF_ERROR(model_.file.file->CheckUnchanged());
  TrainerOptions options = OptionsOfTrainer();
  if (group != nullptr && (group->rank() < 0 || group->rank() >= group->size())) {
    return MakeError(ErrorKind::kRuntime, "train.group",
                     "the group has rank {} of {}, expected a rank from 0 to below their number",
                     group->rank(), group->size());
  }
  options.group = group;
  RL_RETURN_IF_ERROR(CreateTrainer(options));
  RL_RETURN_IF_ERROR(trainer_->Start());
  RL_ASSIGN_OR_RETURN(const TrainingMemory memory, trainer_->Memory());
  std::string recomputed;
  if (options.recomputed_layers > 0) {
    recomputed = fmt::format(", those of {} of {} layers computed again", options.recomputed_layers,
                             model_.facts().layers);
  }
  notices_.Note(fmt::format(
      "training needs {} on the device: weights {}, adapter and its optimizer {}, activations of "
      "{} rows {}{}, scratch memory {}",
      SizeText(memory.total()), SizeText(memory.weights), SizeText(memory.states), options.max_t,
      SizeText(memory.activations), recomputed, SizeText(memory.others)));
  return OkStatus();
}

// Creates a trainer that computes the activations of the first layers again, and returns its need.
Result<MemoryNeed> TrainingSetup::CreateTrainer(TrainerOptions& options, int64_t layers) {
  options.recomputed_layers = layers;
  RL_ASSIGN_OR_RETURN(trainer_, Trainer::Create(*model_.model, *model_.file.file, options));
  return trainer_->PredictMemory();
}

// Creates a trainer with as few of these layers as activations within their limit need.
Status TrainingSetup::CreateTrainer(TrainerOptions& options) {
  const int64_t layers = model_.facts().layers;
  if (const auto& wanted = config().grad_checkpoint) {
    return CreateTrainer(options, *wanted ? layers : 0).map([](const MemoryNeed&) {});
  }
  RL_ASSIGN_OR_RETURN(MemoryNeed need, CreateTrainer(options, 0));
  const uint64_t most = need.work;
  const uint64_t limit = MaxActivations(devices_.main().description(), need, options.max_t);
  if (most <= limit) return OkStatus();
  RL_ASSIGN_OR_RETURN(need, CreateTrainer(options, layers));
  if (need.work >= limit) return OkStatus();
  // Each layer saves about as much.
  constexpr int64_t kMaxTries = 8;
  const double share = static_cast<double>(most - limit) / static_cast<double>(most - need.work);
  auto few = static_cast<int64_t>(std::ceil(share * static_cast<double>(layers)));
  for (; few < layers; few += std::max<int64_t>(1, layers / kMaxTries)) {
    RL_ASSIGN_OR_RETURN(need, CreateTrainer(options, few));
    if (need.work <= limit) return OkStatus();
  }
  return CreateTrainer(options, layers).map([](const MemoryNeed&) {});
}

ExampleRefs TrainingSetup::ExamplesOf(int64_t step) {
  ExampleRefs examples;
  examples.reserve(static_cast<size_t>(examples_of_step()));
  for (int64_t i = 0; i < examples_of_step(); ++i) {
    const auto k = static_cast<uint64_t>(step * examples_of_step() + i);
    examples.push_back(&train_[order_->At(k)]);
  }
  return examples;
}

Status TrainingSetup::DrawAdapter(bool with_b) {
  const auto seed = static_cast<uint64_t>(config().seed);
  for (size_t i = 0; i < pairs_.size(); ++i) {
    const int64_t rank = pairs_[i].rank;
    RL_RETURN_IF_ERROR(trainer_->Write(pairs_[i].a, DrawA(weights_[i], rank, seed)));
    if (!with_b) continue;
    RL_RETURN_IF_ERROR(trainer_->Write(pairs_[i].b, DrawB(weights_[i], rank, seed)));
  }
  return OkStatus();
}

Status TrainingSetup::ReadAdapter(const std::string& path) {
  RL_ASSIGN_OR_RETURN(const auto halves, OpenPairs(path, pairs_));
  if (halves) return WritePairs(*halves, path);
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
                   "the adapter '{}' changes {} weights, expected the {} of training.targets", path,
                   adapter.weights.size(), pairs_.size());
}

Status TrainingSetup::WritePairs(const SafetensorsFile& file, const std::string& path) {
  const auto write = [&](const std::string& name, int64_t rows, int64_t columns) -> Status {
    const auto found = std::ranges::find(file.tensors(), name, &SafetensorsTensor::name);
    const std::vector<int64_t> shape = {rows, columns};
    if (found == file.tensors().end() || found->shape != shape) {
      return MakeError(ErrorKind::kUsage, "train.resume",
                       "'{}' has {} for '{}', expected [{}, {}], as training.rank and "
                       "training.targets say",
                       path,
                       found == file.tensors().end()
                           ? std::string("nothing")
                           : fmt::format("[{}]", fmt::join(found->shape, ", ")),
                       name, rows, columns);
    }
    RL_ASSIGN_OR_RETURN(const std::vector<float> values, file.Floats(*found));
    return trainer_->Write(name, values);
  };
  for (const LowRankPair& pair : pairs_) {
    RL_RETURN_IF_ERROR(write(pair.a, pair.rank, pair.inputs));
    RL_RETURN_IF_ERROR(write(pair.b, pair.outputs, pair.rank));
  }
  if (file.tensors().size() == 2 * pairs_.size()) return OkStatus();
  return MakeError(ErrorKind::kUsage, "train.resume",
                   "'{}' has {} tensors, expected A and B of the {} weights of training.targets",
                   path, file.tensors().size(), pairs_.size());
}

Result<Adapter> TrainingSetup::CurrentAdapter() {
  Adapter adapter;
  for (const LowRankPair& pair : pairs_) {
    AdapterWeight weight{.tensor = pair.weight,
                         .rank = pair.rank,
                         .inputs = pair.inputs,
                         .outputs = pair.outputs,
                         .scale = AdapterFactor(config()),
                         .a = {},
                         .b = {}};
    RL_ASSIGN_OR_RETURN(weight.a, trainer_->Read(pair.a));
    RL_ASSIGN_OR_RETURN(weight.b, trainer_->Read(pair.b));
    adapter.weights.push_back(std::move(weight));
  }
  return adapter;
}

}  // namespace rullama
