// Repetition, frequency and presence penalties over the last positions of a sequence.
#include <algorithm>
#include <map>

#include "core/reference/kernels.h"

namespace rullama::reference {
namespace {

// The number of occurrences of each token at positions (q_pos - last_n, q_pos] of a slot.
std::map<int64_t, int64_t> CountTokens(const Call& call, int64_t last_n, int64_t q_pos,
                                       int64_t slot) {
  using In = operands::Penalties;
  const Tensor& history = call.in(In::history);
  const int64_t capacity = history.dims[1];
  const int64_t past = call.in(In::past).i[static_cast<size_t>(slot)];
  std::map<int64_t, int64_t> counts;
  const auto count = [&](int64_t token, int64_t position) {
    if (position > q_pos - last_n && position <= q_pos && token >= 0) ++counts[token];
  };
  for (int64_t j = 0; j < capacity; ++j) {
    const int64_t position = RingPosition(j, past, capacity);
    if (position >= 0) count(ReadInt(history, slot * capacity + j), position);
  }
  const Tensor& tokens = call.in(In::tokens);
  for (size_t i = 0; i < tokens.i.size(); ++i) {
    if (call.in(In::kv_slot).i[i] == slot) count(tokens.i[i], call.in(In::kv_pos).i[i]);
  }
  return counts;
}

struct Penalty {
  double repeat, frequency, presence;
  int64_t last_n;
};

// Both ops have their operands at the same positions. `penalty_of` gives the settings of a row.
template <typename PenaltyOf>
Status Penalise(const Call& call, const PenaltyOf& penalty_of) {
  using In = operands::Penalties;
  const int64_t slots = call.in(In::history).dims[0];
  call.y() = call.in(In::logits);
  for (int64_t row = 0; row < call.y().rows(); ++row) {
    const int64_t slot = call.in(In::q_slot).i[static_cast<size_t>(row)];
    if (slot < 0 || slot >= slots) {
      return IndexError(call, "row {} has slot {}, the history {} slots", row, slot, slots);
    }
    const Penalty penalty = penalty_of(row);
    const auto z = Row(call.y(), row);
    const int64_t pos = call.in(In::q_pos).i[static_cast<size_t>(row)];
    for (const auto& [token, count] : CountTokens(call, penalty.last_n, pos, slot)) {
      if (token >= static_cast<int64_t>(z.size())) continue;
      double& logit = z[static_cast<size_t>(token)];
      logit = logit > 0 ? logit / penalty.repeat : logit * penalty.repeat;
      logit -= static_cast<double>(count) * penalty.frequency + penalty.presence;
    }
  }
  return OkStatus();
}

}  // namespace

Status EvalPenalties(const Call& call) {
  const auto& a = call.As<rl_penalties_attrs>();
  const Penalty penalty{a.repeat, a.frequency, a.presence, a.last_n};
  return Penalise(call, [&](int64_t) { return penalty; });
}

Status EvalRowPenalties(const Call& call) {
  using In = operands::RowPenalties;
  const int64_t capacity = call.in(In::history).dims[1];
  return Penalise(call, [&](int64_t row) {
    const auto settings = Row(call.in(In::settings), row);
    return Penalty{settings[0], settings[1], settings[2],
                   std::min(static_cast<int64_t>(settings[3]), capacity)};
  });
}

}  // namespace rullama::reference
