#include "cli/commands/diff_model.h"

#include <rullama/sdk/half.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "core/diff/probes.h"
#include "core/diff/router_selections.h"
#include "core/ir/canvas_names.h"
#include "core/runtime/output_names.h"
#include "models/registry.h"

namespace rullama::cli {
namespace {

// Tokens of a comparison that was given no prompt.
constexpr int64_t kDefaultTokens = 16;

// Ids spread over the vocabulary; the same every time.
std::vector<int32_t> SomeTokens(uint64_t seed, int64_t count, int64_t vocabulary) {
  std::vector<int32_t> tokens;
  uint64_t state = seed;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;  // Knuth's MMIX
    tokens.push_back(static_cast<int32_t>((state >> 33) % static_cast<uint64_t>(vocabulary)));
  }
  return tokens;
}

// Embeddings as a preceding step might have computed them: small numbers, the same every time.
std::vector<std::byte> SomeEmbeddings(const TensorType& type) {
  std::vector<float> values(static_cast<size_t>(type.ElementsAt({})));
  const float scale = 1 / std::sqrt(static_cast<float>(type.last().constant));
  for (size_t i = 0; i < values.size(); ++i) {
    const uint64_t word = (i + 1) * 0x9E3779B97F4A7C15U;  // Knuth's multiplicative hash
    values[i] = (static_cast<float>(word >> 40) * 0x1p-24F - 0.5F) * scale;
  }
  std::vector<std::byte> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// The graph of one step over the tokens, with all logits; constants that the file does not have go
// to `constants`.
Status Build(const Model& network, const ModelAdapters& adapters, CacheTypes kv_dtype,
             DiffModel& model, std::vector<SyntheticConstant>& constants) {
  const ModelFacts& facts = network.facts();
  const auto rows = static_cast<int64_t>(model.tokens.size());
  const ModelPass pass = facts.denoises() ? ModelPass::kCanvas : ModelPass::kCausal;
  RL_ASSIGN_OR_RETURN(
      ModelGraph parts,
      network.BuildGraph({.pass = pass, .capacity = rows, .kv_dtype = kv_dtype, .max_t = rows}));
  for (const ValueId id : parts.hidden)
    model.layers.push_back(parts.builder.graph().value(id).name);
  model.layers.emplace_back(output_names::kLogits);
  AddLogitsOutput(parts.builder, parts.logits, RowDemand::kAll);
  constants = std::move(parts.constants);
  constants.insert(constants.end(), adapters.constants.begin(), adapters.constants.end());
  RL_ASSIGN_OR_RETURN(const Graph graph, std::move(parts.builder).Finish());
  RL_ASSIGN_OR_RETURN(model.graph,
                      WithScalesAndAdapters(graph, facts.weight_scales, adapters.pairs));
  // A canvas pass changes no state: what it reads can be given to it.
  if (facts.denoises()) model.graph = WithoutStates(std::move(model.graph));
  model.vocabulary = facts.vocabulary;
  model.sliding_window = facts.sliding_window;
  model.heads = facts.heads;
  return OkStatus();
}

Result<std::vector<int32_t>> TokensOf(const LoadedModel& model, const PromptFlags& flags) {
  RL_ASSIGN_OR_RETURN(const auto prompt, ReadPrompt(flags));
  const int64_t count = model.facts().denoises() ? model.facts().canvas.length : kDefaultTokens;
  if (!prompt) return SomeTokens(1, count, model.facts().vocabulary);
  if (!prompt->ids) {
    EncodeOptions options;
    options.add_bos = true;
    return model.tokenizer->Encode(prompt->text, options);
  }
  for (const int32_t id : *prompt->ids) {
    if (!model.tokenizer->Contains(id)) {
      return MakeError(ErrorKind::kUsage, "tokenizer.id",
                       "token id {} is outside the vocabulary of {} tokens", id,
                       model.tokenizer->size());
    }
  }
  return *prompt->ids;
}

std::vector<float> AsFloats(DType dtype, const std::vector<std::byte>& bytes) {
  const size_t size = InfoOf(dtype).block_bytes;
  std::vector<float> values(bytes.size() / size);
  if (dtype == DType::kF32) {
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  if (dtype == DType::kI32) {
    std::vector<int32_t> integers(values.size());
    std::memcpy(integers.data(), bytes.data(), bytes.size());
    return {integers.begin(), integers.end()};
  }
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t half = 0;
    std::memcpy(&half, bytes.data() + i * size, sizeof(half));
    values[i] = dtype == DType::kF16 ? HalfToFloat(half) : BFloat16ToFloat(half);
  }
  return values;
}

}  // namespace

std::string BaselineOf(const std::vector<std::string>& backends) {
  const bool has = std::ranges::find(backends, kReferenceBackend) != backends.end();
  return has ? kReferenceBackend : backends.back();
}

Config ConfigOfBackend(const Config& config, const std::string& backend) {
  Config chosen = config;
  if (config.backend.name != backend) chosen.backend.options.clear();
  chosen.backend.name = backend;
  chosen.backend.devices.clear();
  return chosen;
}

Result<std::unique_ptr<DiffModel>> OpenDiffModel(const ConfigFlags& flags,
                                                 const PromptFlags& prompt, Console& console) {
  auto model = std::make_unique<DiffModel>();
  RL_ASSIGN_OR_RETURN(ConfiguredModel loaded, LoadModel(flags, console));
  model->file = std::move(loaded.model);
  const LoadedModel& file = *model->file;
  RL_ASSIGN_OR_RETURN(model->tokens, TokensOf(file, prompt));
  const auto count = static_cast<int64_t>(model->tokens.size());
  const bool denoises = file.facts().denoises();
  const int64_t most = denoises ? file.facts().canvas.length : file.capacity();
  if (count < 1 || count > most) {
    return MakeError(ErrorKind::kRuntime, "context.overflow",
                     "the prompt has {} tokens, expected 1 to {} ({})", count, most,
                     denoises ? "it is the model's canvas" : "--ctx-size");
  }
  // A canvas is predicted in place, not after its tokens.
  if (!denoises) {
    for (const int32_t id : model->tokens) {
      file.tokenizer->AppendBytes(id, model->texts.emplace_back());
    }
  }
  model->name = file.file.name;
  // One number format for every backend, or they would not run the same graph.
  const CacheTypes kv_dtype = KvDtypeFor(file.config(), "any");
  std::vector<SyntheticConstant> constants;
  RL_RETURN_IF_ERROR(Build(*file.model, file.adapters, kv_dtype, *model, constants));
  auto weights = std::make_unique<GgufWeights>(*file.file.file);
  for (SyntheticConstant& constant : constants) {
    weights->AddConstant(std::move(constant.name), constant.type, std::move(constant.bytes));
  }
  model->weights = std::move(weights);
  return model;
}

Result<std::unique_ptr<DiffModel>> OpenRandomDiffModel(uint64_t seed) {
  auto model = std::make_unique<DiffModel>();
  const DrawnModel drawn = ModelFamilies().front()->draw(seed);
  model->name = drawn.description;
  const ModelFacts& facts = drawn.model->facts();
  const int64_t count = facts.denoises() ? facts.canvas.length : 2 * facts.sliding_window;
  model->tokens = SomeTokens(seed, count, facts.vocabulary);
  std::vector<SyntheticConstant> constants;
  RL_RETURN_IF_ERROR(Build(*drawn.model, {}, DType::kF32, *model, constants));
  model->weights = drawn.weights(std::move(constants));
  return model;
}

Result<DiffValues> RunDiffModel(const DiffModel& model, const Graph& graph,
                                const std::vector<std::string>& watched, const DiffValues& given,
                                const BackendDevices& devices, StepObserver* observer) {
  SessionOptions options;
  options.devices = devices.Borrow();
  options.policy = devices.policy;
  options.limits = {.max_t = std::ssize(model.tokens)};
  options.observer = observer;
  std::vector<std::string> names;
  for (const auto& [name, values] : given) names.push_back(name);
  const Graph observed = WithPinnedValues(WithOutputs(graph, watched), names);
  RL_ASSIGN_OR_RETURN(const auto session, Session::Create(observed, *model.weights, options));
  const StepRows rows =
      StepRows::Consecutive(model.tokens, /*past=*/0, /*slot=*/0, DemandMode::kAllRows);
  for (const Value& value : observed.values) {
    if (value.lifetime != Lifetime::kInput) continue;
    if (value.name == canvas_names::kRow) {
      RL_RETURN_IF_ERROR(session->SetInput(value.name, std::as_bytes(std::span(rows.pos))));
    } else if (given.contains(value.name)) {
      const std::vector<float>& values = given.at(value.name);
      const std::vector<int32_t> integers(values.begin(), values.end());
      RL_RETURN_IF_ERROR(session->SetInput(value.name, std::as_bytes(std::span(integers))));
    } else if (value.name == canvas_names::kSoftEmbedding) {
      RL_RETURN_IF_ERROR(session->SetInput(value.name, SomeEmbeddings(value.type)));
    } else if (value.type.rank == kMaxRank) {  // a state that was made an input: an empty cache
      RL_RETURN_IF_ERROR(
          session->SetInput(value.name, std::vector<std::byte>(value.type.BytesAt({}))));
    }
  }
  RL_RETURN_IF_ERROR(session->Run(rows));
  const Extents extents{static_cast<int64_t>(model.tokens.size()), 0};
  DiffValues values;
  for (const Output& output : observed.outputs) {
    const TensorType& type = observed.type(output.value);
    std::vector<std::byte> bytes(type.BytesAt(extents));
    RL_RETURN_IF_ERROR(session->ReadOutput(output.name, bytes));
    values[output.name] = AsFloats(type.dtype, bytes);
  }
  return values;
}

}  // namespace rullama::cli
