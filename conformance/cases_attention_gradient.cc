// Cases of attention without old rows and of its derivatives: grouped heads, windows, several slots
// in one step, queries of some rows only.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "conformance/case.h"
#include "core/base/check.h"
#include "core/reference/evaluate.h"

namespace rullama::conformance {
namespace {

using reference::Tensor;

struct FreshSetup {
  const char* name;
  int64_t heads, kv_heads, dim, window;
  rl_mask mask;
  DType dtype;                // of keys and values
  std::vector<int32_t> rows;  // of each slot
  int64_t queries = 0;        // the last rows of the step; 0: all
  bool interleaved = false;   // rows of the slots take turns
  double largest = 2;         // value
};

const std::vector<FreshSetup>& FreshSetups() {
  static const std::vector<FreshSetup> kFreshSetups = {
      {"one", 4, 2, 64, 0, RL_MASK_CAUSAL, DType::kF32, {1}},
      {"few", 4, 2, 64, 0, RL_MASK_CAUSAL, DType::kF32, {19}},
      {"few_f16", 4, 2, 64, 0, RL_MASK_CAUSAL, DType::kF16, {19}},
      {"window", 4, 1, 64, 8, RL_MASK_CAUSAL, DType::kF32, {37}},
      {"slots", 4, 2, 128, 0, RL_MASK_CAUSAL, DType::kF32, {5, 1, 9}},
      {"slots_interleaved", 2, 1, 64, 3, RL_MASK_CAUSAL, DType::kF32, {7, 7, 7}, 0, true},
      {"wanted", 8, 2, 64, 0, RL_MASK_CAUSAL, DType::kF32, {23, 14}, 11},
      {"own_keys", 3, 3, 64, 0, RL_MASK_CAUSAL, DType::kF32, {33}},
      {"canvas", 4, 2, 64, 0, RL_MASK_CANVAS, DType::kF32, {16}},
      // Towers of pictures: every row sees every row.
      {"tower_24", 2, 2, 24, 0, RL_MASK_CANVAS, DType::kF32, {33}},
      {"tower_72", 3, 3, 72, 0, RL_MASK_CANVAS, DType::kF32, {70}},
      {"tower_64_large", 3, 1, 64, 0, RL_MASK_CANVAS, DType::kF32, {97}, 0, false, 3e5},
      {"texts_large", 3, 1, 256, 0, RL_MASK_CANVAS, DType::kF32, {97, 1, 64}, 0, false, 3e5},
      {"tower_36_slots", 2, 2, 36, 0, RL_MASK_CANVAS, DType::kF32, {41, 41}, 0, true},
      {"head_512", 8, 2, 512, 0, RL_MASK_CAUSAL, DType::kF32, {21}},
      {"many", 8, 1, 256, 0, RL_MASK_CAUSAL, DType::kF32, {131}},
      {"many_window", 8, 1, 256, 48, RL_MASK_CAUSAL, DType::kF32, {140}},
      {"many_slots", 4, 2, 128, 20, RL_MASK_CAUSAL, DType::kF32, {40, 65, 30}},
      {"many_wanted", 8, 2, 256, 19, RL_MASK_CAUSAL, DType::kF32, {25, 25}, 29, true, 3e4},
  };
  return kFreshSetups;
}

// The values of a case, in the builder and for the reference.
class FreshCase {
 public:
  FreshCase(const FreshSetup& setup, uint64_t seed)
      : setup_(setup), b_(seed, RowsOf(setup), QueriesOf(setup)) {
    Order();
    // Scores of order one.
    const double size = 3 / std::sqrt(static_cast<double>(setup.dim));
    Draw("q", F({Dim::R(), setup.heads, setup.dim}), 3);
    Draw("k", {setup.dtype, {kT, setup.kv_heads, setup.dim}}, size);
    Draw("v", {setup.dtype, {kT, setup.kv_heads, setup.dim}}, setup.largest);
    Draw("dy", F({Dim::R(), setup.heads, setup.dim}), 2);
  }

  [[nodiscard]] CaseBuilder& b() { return b_; }
  [[nodiscard]] const FreshSetup& setup() const { return setup_; }

  // The value of this name, declared on first use.
  ValueId Id(const std::string& name) {
    const ValueId known = b_.graph().graph().Find(name);
    if (known != kNoValue) return known;
    const auto& [type, tensor] = values_.at(name);
    return type.dtype == DType::kI32
               ? b_.Ints(name, type, std::vector<int32_t>(tensor.i.begin(), tensor.i.end()))
               : b_.Floats(name, type, tensor.f);
  }
  std::vector<ValueId> Ids(const std::vector<std::string>& names) {
    std::vector<ValueId> ids;
    ids.reserve(names.size());
    for (const std::string& name : names) ids.push_back(name.empty() ? kNoValue : Id(name));
    return ids;
  }

  // Adds the first result of an op on these values, as the reference computes it.
  void Compute(const std::string& name, const TensorType& type, OpKind kind, const OpAttrs& attrs,
               const std::vector<std::string>& operands) {
    std::vector<const Tensor*> tensors;
    tensors.reserve(operands.size());
    for (const std::string& operand : operands) {
      tensors.push_back(operand.empty() ? nullptr : &values_.at(operand).second);
    }
    auto results = reference::EvaluateOp(kind, attrs, tensors);
    RL_CHECK(results.has_value());
    values_[name] = {type, std::move((*results)[0])};
  }

  // y and lse of the forward pass.
  void RunForward() {
    const FreshSetup& s = setup_;
    Compute("y", F({Dim::R(), s.heads, s.dim}), OpKind::kAttention,
            OpAttrs(rl_attention_attrs{0, s.mask, s.window, kScale}),
            {"q", "k", "v", "", "", "q_pos", "q_slot", "kv_pos", "kv_slot", "", ""});
    Compute("lse", F({Dim::R(), s.heads}), OpKind::kAttentionStats,
            OpAttrs(rl_attention_stats_attrs{0, s.mask, s.window, kScale}),
            {"q", "k", "q_pos", "q_slot", "kv_pos", "kv_slot"});
  }

  Case Finish(OpKind kind, const std::vector<std::string>& operands, const OpAttrs& attrs) {
    const std::vector<ValueId> ids = Ids(operands);
    const bool is_tower = kind == OpKind::kAttention && setup_.mask == RL_MASK_CANVAS;
    return OneOp(std::move(b_), kind, ids, attrs,
                 is_tower ? ToleranceClass::kHalfFactors : ToleranceClass::kContraction);
  }

  static constexpr float kScale = 0.7F;

 private:
  static int64_t RowsOf(const FreshSetup& setup) {
    int64_t count = 0;
    for (const int32_t rows : setup.rows) count += rows;
    return count;
  }
  static int64_t QueriesOf(const FreshSetup& setup) {
    return setup.queries > 0 ? setup.queries : RowsOf(setup);
  }

  // Positions and slots of the rows.
  void Order() {
    std::vector<int32_t> pos, slot;
    std::vector<int32_t> next(setup_.rows.size(), 0);
    const auto add = [&](size_t i) {
      pos.push_back(next[i]++);
      slot.push_back(static_cast<int32_t>(i));
    };
    if (setup_.interleaved) {
      for (int32_t round = 0; round < setup_.rows[0]; ++round) {
        for (size_t i = 0; i < next.size(); ++i) add(i);
      }
    } else {
      for (size_t i = 0; i < next.size(); ++i) {
        for (int32_t n = 0; n < setup_.rows[i]; ++n) add(i);
      }
    }
    const auto first = static_cast<std::ptrdiff_t>(pos.size()) - QueriesOf(setup_);
    Store("kv_pos", I({kT}), pos);
    Store("kv_slot", I({kT}), slot);
    Store("q_pos", I({Dim::R()}), {pos.begin() + first, pos.end()});
    Store("q_slot", I({Dim::R()}), {slot.begin() + first, slot.end()});
  }

  void Store(const std::string& name, const TensorType& type, const std::vector<int32_t>& numbers) {
    values_[name] = {type, Tensor::I32({static_cast<int64_t>(numbers.size())}, numbers)};
  }

  void Draw(const std::string& name, const TensorType& type, double most) {
    Tensor tensor = reference::MakeZeros(type.dtype, reference::DimsAt(type, b_.extents()));
    for (double& value : tensor.f) {
      value = reference::RoundTo(type.dtype, b_.random().Uniform(-most, most));
    }
    values_[name] = {type, std::move(tensor)};
  }

  const FreshSetup& setup_;
  CaseBuilder b_;
  std::map<std::string, std::pair<TensorType, Tensor>> values_;
};

const std::vector<std::string>& GradOperands() {
  static const std::vector<std::string> kOperands = {"q",  "k",     "v",      "y",      "lse",
                                                     "dy", "q_pos", "q_slot", "kv_pos", "kv_slot"};
  return kOperands;
}

Case FreshAttention(const FreshSetup& s, uint64_t seed) {
  return FreshCase(s, seed).Finish(
      OpKind::kAttention, {"q", "k", "v", "", "", "q_pos", "q_slot", "kv_pos", "kv_slot", "", ""},
      OpAttrs(rl_attention_attrs{0, s.mask, s.window, FreshCase::kScale}));
}

Case FreshScores(const FreshSetup& s, uint64_t seed) {
  return FreshCase(s, seed).Finish(
      OpKind::kAttentionScores, {"q", "k", "", "q_pos", "q_slot", "kv_pos", "kv_slot", "", ""},
      OpAttrs(rl_attention_scores_attrs{0, s.mask, s.window, FreshCase::kScale}));
}

Case Stats(const FreshSetup& s, uint64_t seed) {
  return FreshCase(s, seed).Finish(
      OpKind::kAttentionStats, {"q", "k", "q_pos", "q_slot", "kv_pos", "kv_slot"},
      OpAttrs(rl_attention_stats_attrs{0, s.mask, s.window, FreshCase::kScale}));
}

Case GradQ(const FreshSetup& s, uint64_t seed) {
  FreshCase made(s, seed);
  made.RunForward();
  return made.Finish(OpKind::kAttentionGradQ, GradOperands(),
                     OpAttrs(rl_attention_grad_q_attrs{0, s.mask, s.window, FreshCase::kScale}));
}

Case GradKv(const FreshSetup& s, uint64_t seed) {
  FreshCase made(s, seed);
  made.RunForward();
  return made.Finish(OpKind::kAttentionGradKv, GradOperands(),
                     OpAttrs(rl_attention_grad_kv_attrs{0, s.mask, s.window, FreshCase::kScale}));
}

Case FreshMix(const FreshSetup& s, uint64_t seed, bool transposed) {
  FreshCase made(s, seed);
  CaseBuilder& b = made.b();
  const TensorType type = F({Dim::R(), s.heads, kT});
  std::vector<double> p(static_cast<size_t>(type.ElementsAt(b.extents())));
  for (double& value : p) value = std::max(0.0, b.random().Uniform(-1, 1));
  const ValueId probability = b.Floats("probability", type, p);
  if (transposed) {
    const ValueId x = made.Id("dy");
    return OneOp(std::move(b), OpKind::kAttentionMixRows, {probability, x},
                 OpAttrs(rl_attention_mix_rows_attrs{0, s.kv_heads}), ToleranceClass::kContraction);
  }
  const std::vector<ValueId> others = made.Ids({"v", "q_slot"});
  return OneOp(std::move(b), OpKind::kAttentionMix, {probability, others[0], kNoValue, others[1]},
               OpAttrs(OpKind::kAttentionMix), ToleranceClass::kContraction);
}

}  // namespace

void AddAttentionGradientCases(std::vector<CaseSpec>& cases) {
  for (const FreshSetup& s : FreshSetups()) {
    const auto add = [&](std::string_view op, OpKind kind, auto make) {
      cases.push_back({fmt::format("{}/fresh_{}", op, s.name), kind,
                       [&s, make](uint64_t seed) { return make(s, seed); }});
    };
    add("attention", OpKind::kAttention, FreshAttention);
    add("attention_scores", OpKind::kAttentionScores, FreshScores);
    add("attention_mix", OpKind::kAttentionMix,
        [](const FreshSetup& setup, uint64_t seed) { return FreshMix(setup, seed, false); });
    add("attention_stats", OpKind::kAttentionStats, Stats);
    add("attention_grad_q", OpKind::kAttentionGradQ, GradQ);
    add("attention_grad_kv", OpKind::kAttentionGradKv, GradKv);
    add("attention_mix_rows", OpKind::kAttentionMixRows,
        [](const FreshSetup& setup, uint64_t seed) { return FreshMix(setup, seed, true); });
  }
}

}  // namespace rullama::conformance
