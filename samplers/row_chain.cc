#include "samplers/row_chain.h"

#include <algorithm>

#include "samplers/row_input_names.h"
#include "samplers/steps.h"

namespace rullama {
namespace {

using row_inputs::kBias;
using row_inputs::kBiasIds;
using row_inputs::kDrawSettings;
using row_inputs::kKeyWords;
using row_inputs::kMask;
using row_inputs::kPath;
using row_inputs::kPenalties;
using row_inputs::kPenaltySettings;
using row_inputs::kSettings;

// The chain being appended: what its steps share.
struct Rows {
  GraphBuilder& b;
  SamplerInputs inputs;  // q_pos and q_slot of the wanted rows
  int64_t vocabulary;
  ValueId settings = kNoValue;
  ValueId uniform = kNoValue;

  // An input of R rows.
  ValueId Input(std::string_view name, DType dtype, int64_t columns) {
    return b.Input(name, {dtype, {Dim::R(), columns}});
  }
};

void AddDrawInputs(Rows& rows) {
  rows.settings = rows.Input(kSettings, DType::kF32, kDrawSettings);
  const ValueId key = rows.Input(kDrawKeyInput, DType::kI32, kKeyWords);
  rows.uniform =
      rows.b.Add(ops::RowUniform{.key = key, .pos = rows.inputs.rows.q_pos}, "sampler.uniform");
}

ValueId AddEdits(Rows& rows, ValueId logits, ValueId history) {
  GraphBuilder& b = rows.b;
  const ValueId bits = rows.Input(kMask, DType::kI32, MaskWords(rows.vocabulary));
  logits = b.Add(ops::TokenMask{.logits = logits, .bits = bits}, "sampler.allowed");
  const ValueId ids = rows.Input(kBiasIds, DType::kI32, kMaxRowBiases);
  const ValueId bias = rows.Input(kBias, DType::kF32, kMaxRowBiases);
  logits = b.Add(ops::RowBias{.logits = logits, .ids = ids, .bias = bias}, "sampler.biased");
  const ValueId settings = rows.Input(kPenalties, DType::kF32, kPenaltySettings);
  return b.Add(ops::WithRows(ops::RowPenalties{.logits = logits,
                                               .history = history,
                                               .tokens = rows.inputs.tokens,
                                               .settings = settings},
                             rows.inputs.rows),
               "sampler.penalised");
}

// i32[R]: columns of `x`.
ValueId AddSample(Rows& rows, ValueId x, std::string_view name) {
  return rows.b.Add(ops::RowSample{.x = x, .u = rows.uniform, .settings = rows.settings}, name);
}

// i32[R]: the column of the largest logit, the first of equal ones.
ValueId AddMostLikely(Rows& rows, ValueId logits) {
  return rows.b.Add(ops::ArgMax{.x = logits}, "sampler.most_likely");
}

// i32[R]: tokens drawn from the k best.
ValueId AddSampleOfBest(Rows& rows, ValueId logits, int64_t k, const std::string& name) {
  const auto best = rows.b.Add(ops::TopK{.x = logits, .k = k}, name + ".top_k");
  const ValueId column = AddSample(rows, best.values, name + ".column");
  return rows.b.Add(ops::GatherLast{.x = best.indices, .index = column}, name + ".token");
}

// Draws each row on every path and takes the token of the row's own.
ValueId AddSampleOfAny(Rows& rows, ValueId logits, ValueId of_few) {
  GraphBuilder& b = rows.b;
  const ValueId of_sorted = AddSampleOfBest(rows, logits, rows.vocabulary, "sampler.sorted");
  const ValueId of_all = AddSample(rows, logits, "sampler.all.token");
  const auto column = [&b](ValueId tokens) { return b.Add(ops::ReshapeTo(tokens, {1})); };
  // In the order of Path.
  const ValueId two = b.Add(ops::Concat{.a = column(of_few), .b = column(of_sorted), .axis = 1});
  const ValueId tokens = b.Add(ops::Concat{.a = two, .b = column(of_all), .axis = 1});
  const ValueId path = b.Input(kPath, {DType::kI32, {Dim::R()}});
  return b.Add(ops::GatherLast{.x = tokens, .index = path}, "sampler.token");
}

void AddLogprobs(Rows& rows, ValueId logits, ValueId token) {
  GraphBuilder& b = rows.b;
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
  Rows rows{.b = builder,
            .inputs = samplers::AtWantedRows(builder, inputs),
            .vocabulary = builder.graph().type(logits).last().constant};
  const ValueId original = samplers::WantedRows(builder, logits, inputs.wanted);
  if (options.kind != RowChainKind::kGreedy) AddDrawInputs(rows);
  const ValueId history = HistoryOf(builder, inputs);
  ValueId edited = original;
  if (options.kind >= RowChainKind::kEdited) edited = AddEdits(rows, original, history);
  AppendTokens(builder, inputs, history);
  ValueId token =
      options.kind == RowChainKind::kGreedy
          ? AddMostLikely(rows, edited)
          : AddSampleOfBest(rows, edited, std::min(kMaxPlainTopK, rows.vocabulary), "sampler.few");
  if (options.kind == RowChainKind::kFull) token = AddSampleOfAny(rows, edited, token);
  builder.Output(kTokenOutput, token);
  if (options.logprobs) AddLogprobs(rows, original, token);
  return token;
}

}  // namespace rullama
