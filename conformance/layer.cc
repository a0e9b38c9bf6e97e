#include "conformance/layer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "conformance/check.h"
#include "conformance/suite.h"

namespace rullama::conformance {
namespace {

// CaseBuilder compiles for more rows than it is told.
constexpr int64_t kBuilderRows = kLayerMaxRows - CaseBuilder::kSpareRows;

OpAttrs ChainAttrs(OpKind kind) {
  switch (kind) {
    case OpKind::kAffine:
      return OpAttrs(rl_affine_attrs{0, -0.5F, 0.25F});
    case OpKind::kUnary:
      return OpAttrs(rl_unary_attrs{0, RL_UNARY_NEG});
    case OpKind::kRmsNorm:
      return OpAttrs(rl_rms_norm_attrs{0, 1e-6F});
    case OpKind::kSoftcap:
      return OpAttrs(rl_softcap_attrs{0, 2.0F});
    default:
      return OpAttrs(kind);
  }
}

}  // namespace

Case LayerCase(uint64_t seed, DType weights) {
  constexpr int64_t kWidth = 32, kHeads = 2, kDim = 16;
  CaseBuilder b(seed, kBuilderRows, kBuilderRows);
  GraphBuilder& g = b.graph();
  const ValueId x = b.Floats("x", F({kT, kWidth}));
  const ValueId pos = b.Ints("pos", I({kT}), {0, 1, 2, 3, 4});
  const ValueId slot = b.Ints("slot", I({kT}), std::vector<int32_t>(kBuilderRows, 0));
  const ValueId past = b.Ints("past", I({kLayerSlots}), std::vector<int32_t>(kLayerSlots, 0));
  const ValueId rows = b.Ints("rows", I({Dim::R()}), {0, 1, 2, 3, 4});
  const TensorType cache(DType::kF32, {kLayerSlots, kLayerCapacity, 1, kDim});
  const ValueId k_state = b.State("k_state", cache, 0, 0);
  const ValueId v_state = b.State("v_state", cache, 0, 0);
  const ValueId norm = g.Add(
      ops::RmsNorm{
          .x = x, .weight = b.Constant("norm.weight", F({kWidth}), 0.5, 1.5), .eps = 1e-6F},
      "norm");
  const auto project = [&](const char* name, int64_t heads) {
    const std::string weight = std::string(name) + ".weight";
    const TensorType type(weights, {heads * kDim, kWidth});
    const ValueId w =
        IsBlockType(weights) ? b.Weight(weight, type) : b.Constant(weight, type, -0.3, 0.3);
    return g.Add(
        ops::ReshapeTo(g.Add(ops::Linear(norm, w), std::string(name) + ".flat"), {heads, kDim}),
        std::string(name) + ".heads");
  };
  const ValueId q =
      g.Add(ops::Rope{.x = project("q", kHeads), .pos = pos, .theta = 1e4F, .n_rot = kDim}, "q");
  const ValueId k =
      g.Add(ops::Rope{.x = project("k", 1), .pos = pos, .theta = 1e4F, .n_rot = kDim}, "k");
  const ValueId v = project("v", 1);
  const ValueId mix = g.Add(ops::WithRows(ops::Attention{.q = q,
                                                         .k_new = k,
                                                         .v_new = v,
                                                         .k_state = k_state,
                                                         .v_state = v_state,
                                                         .mask = RL_MASK_CAUSAL,
                                                         .window = kLayerCapacity,
                                                         .scale = 0.25F},
                                          ops::AttentionRows{pos, slot, pos, slot, past}),
                            "mix");
  g.Add(ops::StateAppend{.state = k_state, .rows = k, .pos = pos, .slot = slot}, "k.next");
  g.Add(ops::StateAppend{.state = v_state, .rows = v, .pos = pos, .slot = slot}, "v.next");
  const ValueId flat = g.Add(ops::ReshapeTo(mix, {kHeads * kDim}), "mix.flat");
  const ValueId sum = g.Add(ops::Sum(x, flat), "sum");
  const ValueId wanted = g.Add(ops::GatherRows{.table = sum, .ids = rows}, "wanted");
  const ValueId best = g.Add(ops::ArgMax{wanted}, "best");
  b.Output(wanted);
  b.Output(best);
  return std::move(b).Finish(IsBlockType(weights) ? ToleranceClass::kComposite
                                                  : ToleranceClass::kContraction);
}

Case ChainCase(uint64_t seed, OpKind kind) {
  CaseBuilder b(seed, kBuilderRows, kBuilderRows);
  ValueId value = b.Floats("x", F({kT, 33}));
  for (const char* name : {"first", "second", "third"}) {
    std::vector<ValueId> inputs = {value};
    if (kind == OpKind::kRmsNorm) inputs.push_back(kNoValue);
    value = b.graph().Add(kind, inputs, ChainAttrs(kind), name)[0];
  }
  b.Output(value);
  return std::move(b).Finish(ToleranceClass::kContraction);
}

Result<Case> RichestCase(Device& device, uint64_t seed) {
  std::vector<Case> candidates = {LayerCase(seed)};
  for (const OpKind kind :
       {OpKind::kRmsNorm, OpKind::kSoftcap, OpKind::kAffine, OpKind::kUnary, OpKind::kCopy}) {
    candidates.push_back(ChainCase(seed, kind));
  }
  std::string last;
  for (Case& candidate : candidates) {
    RL_ASSIGN_OR_RETURN(last, WhyUnsupported(device, candidate.graph));
    if (last.empty()) return std::move(candidate);
  }
  return Unsupported("the plugin has none of the ops these graphs are made of: " + last);
}

// ---- steps --------------------------------------------------------------------------------------

Steps::Steps(const Case& test, uint64_t seed) : test_(test), random_(seed) {}

Steps::Step Steps::Next() {
  constexpr int kGoBackEvery = 13;
  const auto slot = static_cast<size_t>(random_.Int(0, kLayerSlots - 1));
  if (++count_ % kGoBackEvery == 0) past_[slot] /= 2;
  Step step;
  step.extents.t = random_.Int(1, kLayerMaxRows);
  step.extents.r = random_.Int(1, step.extents.t);
  const auto rows = static_cast<size_t>(step.extents.t);
  const std::vector<int32_t> past = past_;
  std::vector<int32_t> pos, slots(rows, static_cast<int32_t>(slot)), wanted;
  for (size_t i = 0; i < rows; ++i) pos.push_back(past_[slot]++);
  for (int64_t i = 0; i < step.extents.r; ++i) {
    wanted.push_back(static_cast<int32_t>(random_.Int(0, step.extents.t - 1)));
  }
  const TensorType& x = test_.graph.type(test_.graph.Find("x"));
  std::vector<float> numbers(static_cast<size_t>(x.ElementsAt(step.extents)));
  for (float& number : numbers) number = static_cast<float>(random_.Uniform(-2, 2));
  step.inputs["x"] = BytesOf(numbers);
  if (test_.graph.Find("pos") == kNoValue) return step;
  step.inputs["pos"] = BytesOf(pos);
  step.inputs["slot"] = BytesOf(slots);
  step.inputs["past"] = BytesOf(past);
  step.inputs["rows"] = BytesOf(wanted);
  return step;
}

}  // namespace rullama::conformance
