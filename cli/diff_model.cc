#include "cli/diff_model.h"

#include <rullama/sdk/half.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "core/diff/watch.h"
#include "core/runtime/generator.h"

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

// The graph of one step over the tokens, with all logits; what is not in the file goes to
// `constants`.
Status Build(const Gemma4Config& gemma, const Gemma4Weights& weights, DType kv_dtype,
             DiffModel& model, std::vector<SyntheticConstant>& constants) {
  const auto rows = static_cast<int64_t>(model.tokens.size());
  RL_ASSIGN_OR_RETURN(
      ModelGraph parts,
      BuildModel(gemma, weights, {.capacity = rows, .kv_dtype = kv_dtype, .max_t = rows}));
  for (const ValueId id : parts.hidden)
    model.layers.push_back(parts.builder.graph().value(id).name);
  model.layers.emplace_back(output_names::kLogits);
  AddLogitsOutput(parts.builder, parts.logits, RowDemand::kAll);
  constants = std::move(parts.constants);
  RL_ASSIGN_OR_RETURN(model.graph, std::move(parts.builder).Finish());
  model.vocabulary = gemma.vocabulary;
  return OkStatus();
}

Result<std::vector<int32_t>> TokensOf(const LoadedModel& model, const PromptFlags& flags) {
  RL_ASSIGN_OR_RETURN(const auto prompt, ReadPrompt(flags));
  if (!prompt) return SomeTokens(1, kDefaultTokens, model.gemma.vocabulary);
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
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t half = 0;
    std::memcpy(&half, bytes.data() + i * size, sizeof(half));
    values[i] = dtype == DType::kF16 ? HalfToFloat(half) : BFloat16ToFloat(half);
  }
  return values;
}

}  // namespace

Result<std::unique_ptr<DiffModel>> OpenDiffModel(const ConfigFlags& flags,
                                                 const PromptFlags& prompt, Console& console) {
  auto model = std::make_unique<DiffModel>();
  RL_ASSIGN_OR_RETURN(model->file, LoadModel(flags, console));
  const LoadedModel& file = *model->file;
  RL_ASSIGN_OR_RETURN(model->tokens, TokensOf(file, prompt));
  const auto count = static_cast<int64_t>(model->tokens.size());
  if (count < 1 || count > file.capacity()) {
    return MakeError(ErrorKind::kRuntime, "context.overflow",
                     "the prompt has {} tokens, expected 1 to {} (--ctx-size)", count,
                     file.capacity());
  }
  model->name = file.file.name;
  // One number format for every backend, or they would not run the same graph.
  const DType kv_dtype = KvDtypeFor(file.config(), "any");
  std::vector<SyntheticConstant> constants;
  RL_RETURN_IF_ERROR(Build(file.gemma, file.weights, kv_dtype, *model, constants));
  auto weights = std::make_unique<GgufWeights>(*file.file.file);
  for (SyntheticConstant& constant : constants) {
    weights->AddConstant(std::move(constant.name), constant.type, std::move(constant.bytes));
  }
  model->weights = std::move(weights);
  return model;
}

Result<std::unique_ptr<DiffModel>> OpenRandomDiffModel(uint64_t seed) {
  auto model = std::make_unique<DiffModel>();
  const RandomModel random = MakeRandomModel(seed);
  model->name = random.Describe();
  model->tokens = SomeTokens(seed, 2 * random.config.sliding_window, random.config.vocabulary);
  std::vector<SyntheticConstant> constants;
  RL_RETURN_IF_ERROR(Build(random.config, random.weights, DType::kF32, *model, constants));
  model->weights = std::make_unique<RandomWeights>(random, std::move(constants));
  return model;
}

Result<DiffValues> RunDiffModel(const DiffModel& model, const Graph& graph,
                                const std::vector<std::string>& watched,
                                const BackendDevices& devices) {
  SessionOptions options;
  for (const auto& device : devices.devices) options.devices.push_back(device.get());
  options.policy = devices.policy;
  options.prefill_chunk = static_cast<int64_t>(model.tokens.size());
  const Graph observed = WithOutputs(graph, watched);
  RL_ASSIGN_OR_RETURN(const auto session, Session::Create(observed, *model.weights, options));
  // States that were made inputs: an empty cache.
  for (const Value& value : observed.values) {
    const bool cache = value.lifetime == Lifetime::kInput && value.type.rank == kMaxRank;
    if (!cache) continue;
    RL_RETURN_IF_ERROR(
        session->SetInput(value.name, std::vector<std::byte>(value.type.BytesAt({}))));
  }
  std::vector<int32_t> pos(model.tokens.size());
  std::iota(pos.begin(), pos.end(), 0);
  const std::vector<int32_t> slot(model.tokens.size(), 0);
  StepRows rows;
  rows.tokens = model.tokens;
  rows.pos = pos;
  rows.slot = slot;
  rows.demand = DemandMode::kAllRows;
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
