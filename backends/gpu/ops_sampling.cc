// cumsum, topk, the masks and draws of samplers, penalties and biases.
#include <bit>

#include "backends/gpu/plan_builder.h"

namespace rullama::gpu {
namespace {

enum Scan : uint32_t { kCumSum = 0, kTopP = 1, kCategorical = 2 };  // of scan.comp

constexpr uint32_t kThreads = 256;
// Entries of a list that is sorted in shared memory.
constexpr uint64_t kSharedList = 1024;

// A list to be sorted: its room, and memory if shared memory is too small.
struct List {
  uint64_t room;
  uint32_t shared;
  Scratch memory;
};
List ListFor(PlanBuilder& plan, int64_t entries, int64_t rows) {
  List list{std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(entries, 2))), 0, {}};
  if (list.room <= kSharedList) {
    list.shared = static_cast<uint32_t>(list.room);
  } else {
    list.memory = plan.NewScratch(list.room * static_cast<uint64_t>(rows) * 2 * sizeof(uint32_t));
  }
  return list;
}
DispatchBuilder& Place(DispatchBuilder& dispatch, const List& list) {
  return list.shared != 0 ? dispatch.Pointer(0) : dispatch.Write(list.memory);
}

// As wide as the scans of the shaders allow.
uint32_t Wide(const PlanBuilder& plan) { return std::min(plan.tuning().wide, 1024U); }

void RunScan(PlanBuilder& plan, Scan kind, uint32_t u, float top_p) {
  const rl_value& x = plan.Input(0);
  DispatchBuilder(plan, Shader::kScan, {Wide(plan), kind})
      .Read(plan.InputIndex(0))
      .Read(u)
      .Write(plan.ResultIndex())
      .Rows(x.dims[0], MiddleElements(x))
      .U32(Last(x))
      .F32(top_p)
      .Go(static_cast<uint64_t>(plan.MostRows(x) * MiddleElements(x)));
}

void TopKOfFew(PlanBuilder& plan) {
  const rl_value& x = plan.Input(0);
  const Epilogue& epilogue = plan.node().epilogue;
  DispatchBuilder(plan, Shader::kTopKFew,
                  {kThreads, epilogue.kind == EpilogueKind::kSoftmax ? 1U : 0U})
      .Read(plan.InputIndex(0))
      .Write(plan.StoredIndex())
      .Write(plan.ResultIndex(1))
      .Rows(x.dims[0])
      .U32(Last(x))
      .U32(plan.attrs<rl_topk_attrs>().k)
      .F32(epilogue.factor)
      .Go(static_cast<uint64_t>(plan.MostRows(x)));
}

void TopK(PlanBuilder& plan) {
  const rl_value& x = plan.Input(0);
  if (Last(x) <= kFewTopKColumns) {
    TopKOfFew(plan);
    return;
  }
  const int64_t k = plan.attrs<rl_topk_attrs>().k;
  const List list = ListFor(plan, k, plan.MostRows(x));
  DispatchBuilder dispatch(plan, Shader::kTopK, {Wide(plan), list.shared});
  dispatch.Read(plan.InputIndex(0)).Write(plan.ResultIndex(0)).Write(plan.ResultIndex(1));
  Place(dispatch, list)
      .Rows(x.dims[0])
      .U32(Last(x))
      .U32(k)
      .U32(static_cast<int64_t>(list.room))
      .Go(static_cast<uint64_t>(plan.MostRows(x)));
}

void TypicalP(PlanBuilder& plan) {
  const rl_value& x = plan.Input(0);
  const List list = ListFor(plan, Last(x), plan.MostRows(x));
  DispatchBuilder dispatch(plan, Shader::kTypicalP, {Wide(plan), list.shared});
  dispatch.Read(plan.InputIndex(0)).Write(plan.ResultIndex());
  Place(dispatch, list)
      .Rows(x.dims[0])
      .U32(Last(x))
      .U32(static_cast<int64_t>(list.room))
      .F32(plan.attrs<rl_typical_p_mask_attrs>().p)
      .Go(static_cast<uint64_t>(plan.MostRows(x)));
}

void EntropyAccept(PlanBuilder& plan) {
  const rl_value& x = plan.Input(0);
  const List list = ListFor(plan, plan.MostRows(x), 1);
  DispatchBuilder dispatch(plan, Shader::kEntropyAccept, {kThreads, list.shared});
  dispatch.Read(plan.InputIndex(0)).Write(plan.ResultIndex());
  Place(dispatch, list)
      .Rows(x.dims[0])
      .U32(static_cast<int64_t>(list.room))
      .F32(plan.attrs<rl_entropy_accept_attrs>().bound)
      .Go(1);
}

void Penalties(PlanBuilder& plan) {
  enum : uint32_t { kLogits, kHistory, kTokens, kQPos, kQSlot, kKvPos, kKvSlot, kPast };
  Copy(plan);  // the logits, which penalties then change in places, as biases do below
  const auto& a = plan.attrs<rl_penalties_attrs>();
  const rl_value& history = plan.Input(kHistory);
  const rl_value& y = plan.Result();
  DispatchBuilder dispatch(
      plan, Shader::kPenalties,
      {kThreads, 0, ConstantOf(a.repeat), ConstantOf(a.frequency), ConstantOf(a.presence)});
  for (uint32_t i = kLogits; i <= kPast; ++i) dispatch.Read(plan.InputIndex(i));
  dispatch.Write(plan.ResultIndex())
      .Rows(y.dims[0])
      .Extent(plan.Input(kTokens).dims[0])
      .U32(Last(y))
      .U32(history.dims[0].constant)
      .U32(history.dims[1].constant)
      .U32(a.last_n)
      .U32(plan.op_index() + 1)
      .Go(static_cast<uint64_t>(plan.MostRows(y)));
}

void BiasAdd(PlanBuilder& plan) {
  Copy(plan);
  const rl_value& y = plan.Result();
  constexpr rl_dim kNoRows{0, 0, 0};
  DispatchBuilder(plan, Shader::kPenalties, {kThreads, 1})
      .Read(plan.InputIndex(0))
      .Read(plan.InputIndex(1))
      .Pointer(0)
      .Pointer(0)
      .Pointer(0)
      .Pointer(0)
      .Pointer(0)
      .Read(plan.InputIndex(2))
      .Write(plan.ResultIndex())
      .Rows(y.dims[0])
      .Extent(kNoRows)
      .U32(Last(y))
      .U32(plan.Input(1).dims[0].constant)
      .U32(0)
      .U32(0)
      .U32(plan.op_index() + 1)
      .Go(static_cast<uint64_t>(plan.MostRows(y)));
}

void RandomUniform(PlanBuilder& plan) {
  const rl_value& y = plan.Result();
  DispatchBuilder(plan, Shader::kRandomUniform, {kThreads})
      .Read(plan.InputIndex(0))
      .Read(plan.InputIndex(1))
      .Read(plan.InputIndex(2))
      .Write(plan.ResultIndex())
      .Rows(y.dims[0])
      .U32(plan.attrs<rl_random_uniform_attrs>().stream)
      .Go((static_cast<uint64_t>(plan.MostRows(y)) + kThreads - 1) / kThreads);
}

}  // namespace

bool CompileSampling(PlanBuilder& plan) {
  switch (plan.op().kind) {
    case RL_OP_cumsum:
      RunScan(plan, kCumSum, RL_NO_VALUE, 0);
      return true;
    case RL_OP_top_p_mask:
      RunScan(plan, kTopP, RL_NO_VALUE, plan.attrs<rl_top_p_mask_attrs>().p);
      return true;
    case RL_OP_categorical:
      RunScan(plan, kCategorical, plan.InputIndex(1), 0);
      return true;
    case RL_OP_topk:
      TopK(plan);
      return true;
    case RL_OP_typical_p_mask:
      TypicalP(plan);
      return true;
    case RL_OP_entropy_accept:
      EntropyAccept(plan);
      return true;
    case RL_OP_penalties:
      Penalties(plan);
      return true;
    case RL_OP_bias_add:
      BiasAdd(plan);
      return true;
    case RL_OP_random_uniform:
      RandomUniform(plan);
      return true;
    default:
      return false;
  }
}

}  // namespace rullama::gpu
