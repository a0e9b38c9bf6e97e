#include "samplers/row_chain.h"

#include <algorithm>
#include <string>

#include "samplers/draw_inputs.h"
#include "samplers/steps.h"

namespace rullama {
namespace {

using samplers::StepContext;

// The inputs of the draw: f32[R, kDrawSettings] and f32[R]; none for greedy rows.
struct Draw {
  ValueId settings = kNoValue;
  ValueId uniform = kNoValue;
};

ValueId WantedRows(GraphBuilder& builder, ValueId value, ValueId wanted) {
  return builder.Add(ops::GatherRows{.table = value, .ids = wanted});
}

SamplerInputs AtWantedRows(GraphBuilder& builder, SamplerInputs inputs) {
  inputs.rows.q_pos = WantedRows(builder, inputs.rows.q_pos, inputs.wanted);
  inputs.rows.q_slot = WantedRows(builder, inputs.rows.q_slot, inputs.wanted);
  return inputs;
}

Draw AddDrawInputs(const StepContext& rows) {
  const ValueId settings =
      rows.Input(samplers::kDrawSettingsInput, DType::kF32, samplers::kDrawSettings);
  const ValueId key = rows.Input(kDrawKeyInput, DType::kI32, samplers::kKeyWords);
  return {settings, rows.builder.Add(ops::RowUniform{.key = key, .pos = rows.inputs.rows.q_pos},
                                     "sampler.uniform")};
}

// i32[R]: columns of `x`.
ValueId AddSample(GraphBuilder& b, const Draw& draw, ValueId x, std::string_view name) {
  return b.Add(ops::RowSample{.x = x, .u = draw.uniform, .settings = draw.settings}, name);
}

// i32[R]: tokens drawn from the k best.
ValueId AddSampleOfBest(GraphBuilder& b, const Draw& draw, ValueId logits, int64_t k,
                        const std::string& name) {
  const auto best = b.Add(ops::TopK{.x = logits, .k = k}, name + ".top_k");
  const ValueId column = AddSample(b, draw, best.values, name + ".column");
  return b.Add(ops::GatherLast{.x = best.indices, .index = column}, name + ".token");
}

// Draws each row on every path and takes the token of the row's own.
ValueId AddSampleOfAny(const StepContext& rows, const Draw& draw, ValueId logits, ValueId of_few) {
  GraphBuilder& b = rows.builder;
  const ValueId of_sorted = AddSampleOfBest(b, draw, logits, rows.vocabulary, "sampler.sorted");
  const ValueId of_all = AddSample(b, draw, logits, "sampler.all.token");
  const auto column = [&b](ValueId tokens) { return b.Add(ops::ReshapeTo(tokens, {1})); };
  // In the order of DrawPath.
  const ValueId two = b.Add(ops::Concat{.a = column(of_few), .b = column(of_sorted), .axis = 1});
  const ValueId tokens = b.Add(ops::Concat{.a = two, .b = column(of_all), .axis = 1});
  const ValueId path = b.Input(samplers::kPathInput, {DType::kI32, {Dim::R()}});
  return b.Add(ops::GatherLast{.x = tokens, .index = path}, "sampler.token");
}

// i32[R]: the drawn tokens.
ValueId AddTokens(const StepContext& rows, RowChainKind kind, ValueId logits) {
  GraphBuilder& b = rows.builder;
  // The first of equal logits.
  if (kind == RowChainKind::kGreedy) return b.Add(ops::ArgMax{.x = logits}, "sampler.most_likely");
  const Draw draw = AddDrawInputs(rows);
  const int64_t few = std::min(kMaxPlainTopK, rows.vocabulary);
  const ValueId token = AddSampleOfBest(b, draw, logits, few, "sampler.few");
  return kind == RowChainKind::kFull ? AddSampleOfAny(rows, draw, logits, token) : token;
}

void AddLogprobs(const StepContext& rows, ValueId logits, ValueId token) {
  GraphBuilder& b = rows.builder;
  const auto binary = [&b](ValueId left, ValueId right, rl_binary fn, std::string_view name) {
    return b.Add(ops::Binary{.a = left, .b = right, .fn = fn}, name);
  };
  const int64_t count = std::min(kTopLogprobs, rows.vocabulary);
  const auto best = b.Add(ops::TopK{.x = logits, .k = count}, "logprobs.best");
  const ValueId most = b.Add(ops::Slice{.x = best.values, .axis = 1, .start = 0, .size = 1});
  const ValueId distance = binary(logits, most, RL_BINARY_SUB, "logprobs.distance");
  const ValueId mass = b.Add(ops::Unary{.x = distance, .fn = RL_UNARY_EXP}, "logprobs.mass");
  const ValueId sum = b.Add(ops::Reduce{.x = mass, .fn = RL_REDUCE_SUM}, "logprobs.sum");
  const ValueId log_sum = b.Add(ops::Unary{.x = sum, .fn = RL_UNARY_LOG}, "logprobs.log_sum");
  const ValueId drawn =
      b.Add(ops::ReshapeTo(b.Add(ops::GatherLast{.x = logits, .index = token}), {1}));
  // The largest logit goes first: differences of logits have few bits to lose.
  const auto logprob = [&](ValueId logit, std::string_view name) {
    b.Output(name, binary(binary(logit, most, RL_BINARY_SUB, {}), log_sum, RL_BINARY_SUB, {}));
  };
  logprob(drawn, kLogprobOutput);
  logprob(best.values, kTopLogprobsOutput);
  b.Output(kTopTokensOutput, b.Add(ops::Copy{.x = best.indices}));
}

ValueId HistoryOf(GraphBuilder& builder, const SamplerInputs& inputs) {
  return builder.State(kSamplerHistory, {DType::kI32, {inputs.slots, inputs.capacity}});
}

void AppendTokens(GraphBuilder& builder, const SamplerInputs& inputs, ValueId history) {
  builder.Add(ops::StateAppend{.state = history,
                               .rows = inputs.tokens,
                               .pos = inputs.rows.kv_pos,
                               .slot = inputs.rows.kv_slot},
              "sampler.history.next");
}

}  // namespace

void AppendRowHistory(GraphBuilder& builder, const SamplerInputs& inputs) {
  AppendTokens(builder, inputs, HistoryOf(builder, inputs));
}

ValueId AppendRowChain(GraphBuilder& builder, ValueId logits, const SamplerInputs& inputs,
                       const RowChainOptions& options) {
  // After an earlier error the builder has no types; its Finish() reports the error.
  if (!builder.ok()) return kNoValue;
  const StepContext rows{.builder = builder,
                         .inputs = AtWantedRows(builder, inputs),
                         .vocabulary = builder.graph().type(logits).last().constant,
                         .history = HistoryOf(builder, inputs)};
  const ValueId original = WantedRows(builder, logits, inputs.wanted);
  ValueId edited = original;
  if (options.kind >= RowChainKind::kEdited) {
    for (const samplers::Step* step : samplers::kSteps) edited = step->append(rows, edited);
  }
  AppendTokens(builder, inputs, rows.history);
  const ValueId token = AddTokens(rows, options.kind, edited);
  builder.Output(kTokenOutput, token);
  if (options.logprobs) AddLogprobs(rows, original, token);
  return token;
}

}  // namespace rullama
