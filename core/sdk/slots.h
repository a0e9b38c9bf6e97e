// The facts that a graph states on the sequences that share its caches, and on the steps that it is
// compiled for.
#pragma once

#include <rullama/sdk/backend.h>
#include <rullama/sdk/operands.h>

#include <cstdint>

namespace rullama::sdk {

// The number of slots of the caches that a graph reads; 0 if it reads no cache.
inline int64_t SlotsOf(const GraphView& graph) {
  for (const rl_op& op : graph.ops()) {
    const rl_value* past = nullptr;
    if (op.kind == RL_OP_attention) past = graph.input(op, operands::Attention::past);
    if (op.kind == RL_OP_attention_scores) {
      past = graph.input(op, operands::AttentionScores::past);
    }
    if (past != nullptr) return past->dims[0].constant;
  }
  return 0;
}

// The most rows of a step that takes about as long as reading the weights once.
inline constexpr int64_t kFewRows = 8;

// The most rows of a step that checks a draft of one slot.
inline constexpr int64_t kMaxDraftRows = 17;

// Whether a graph is for steps that want each of several rows. These decode for several slots, or
// check drafts: then several rows of a slot follow one another.
inline bool WantsEachRow(const GraphView& graph) {
  return graph.max_t() > 1 && graph.max_t() == graph.max_r();
}

// Whether the graph is for steps that may decode for several slots, or several tokens of one. What
// a row of such a step gives must not depend on the number of rows or on the others
// (docs/numerics.md): plans of 1, 2, 4, ... rows give the same bytes. Longer steps read prompts.
inline bool DecodesBatch(const GraphView& graph) {
  const int64_t slots = SlotsOf(graph);
  const bool drafts = slots > 0 && WantsEachRow(graph) && graph.max_t() <= kMaxDraftRows;
  return drafts || (slots > 1 && graph.max_t() <= slots);
}

// Whether the graph reads texts whole, each in a slot of its own: its attention has no old rows.
// The results of a text must not depend on the other texts of the step (docs/numerics.md, "Texts of
// a step").
inline bool ReadsWholeTexts(const GraphView& graph) {
  for (const rl_op& op : graph.ops()) {
    if (op.kind == RL_OP_attention) return graph.input(op, operands::Attention::past) == nullptr;
  }
  return false;
}

// The rows of a step that the first row of a text is a multiple of, except on devices of the type
// RL_DEVICE_CPU: tiles of queries and keys then have the rows of one text at the same places.
inline constexpr int64_t kTextAlignment = 64;

}  // namespace rullama::sdk
