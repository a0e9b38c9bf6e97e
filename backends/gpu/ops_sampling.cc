// cumsum, topk, the masks and draws of samplers, penalties and biases.
#include <rullama/sdk/operands.h>

#include <bit>

#include "backends/gpu/op_rows.h"
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
    list.memory =
        plan.scratch().New(list.room * static_cast<uint64_t>(rows) * 2 * sizeof(uint32_t));
  }
  return list;
}
DispatchBuilder& Place(DispatchBuilder& dispatch, const List& list) {
  return list.shared != 0 ? dispatch.Pointer(0) : dispatch.Write(list.memory);
}

// As wide as the scans of the shaders allow.
uint32_t Wide(const PlanBuilder& plan) { return std::min(plan.tuning().wide, 1024U); }

void RunScan(PlanBuilder& plan, Scan kind, uint32_t input, uint32_t u, float top_p) {
  const rl_value& x = plan.graph().value(input);
  DispatchBuilder(plan, Shader::kScan, {Wide(plan), kind})
      .Read(input)
      .Read(u)
      .Write(plan.ResultIndex())
      .Rows(x.dims[0], MiddleElements(x))
      .U32(Last(x))
      .F32(top_p)
      .Emit(static_cast<uint64_t>(plan.MaxRows(x) * MiddleElements(x)));
}

void CumSum(PlanBuilder& plan) {
  RunScan(plan, kCumSum, plan.InputIndex(operands::CumSum::x), RL_NO_VALUE, 0);
}

void TopPMask(PlanBuilder& plan) {
  RunScan(plan, kTopP, plan.InputIndex(operands::TopPMask::x), RL_NO_VALUE,
          plan.attrs<rl_top_p_mask_attrs>().p);
}

void Categorical(PlanBuilder& plan) {
  RunScan(plan, kCategorical, plan.InputIndex(operands::Categorical::x),
          plan.InputIndex(operands::Categorical::u), 0);
}

void TopKOfFew(PlanBuilder& plan) {
  const rl_value& x = plan.Input(operands::TopK::x);
  const Epilogue& epilogue = plan.node().epilogue;
  DispatchBuilder(plan, Shader::kTopKFew,
                  {kThreads, epilogue.kind == EpilogueKind::kSoftmax ? 1U : 0U})
      .Read(plan.InputIndex(operands::TopK::x))
      .Write(plan.StoredIndex())
      .Write(plan.ResultIndex(1))
      .Rows(x.dims[0])
      .U32(Last(x))
      .U32(plan.attrs<rl_topk_attrs>().k)
      .F32(epilogue.factor)
      .Emit(static_cast<uint64_t>(plan.MaxRows(x)));
}

void TopK(PlanBuilder& plan) {
  const rl_value& x = plan.Input(operands::TopK::x);
  if (Last(x) <= kFewTopKColumns) {
    TopKOfFew(plan);
    return;
  }
  const int64_t k = plan.attrs<rl_topk_attrs>().k;
  const List list = ListFor(plan, k, plan.MaxRows(x));
  DispatchBuilder dispatch(plan, Shader::kTopK, {Wide(plan), list.shared});
  dispatch.Read(plan.InputIndex(operands::TopK::x))
      .Write(plan.ResultIndex(0))
      .Write(plan.ResultIndex(1));
  Place(dispatch, list)
      .Rows(x.dims[0])
      .U32(Last(x))
      .U32(k)
      .U32(static_cast<int64_t>(list.room))
      .Emit(static_cast<uint64_t>(plan.MaxRows(x)));
}

void TypicalPMask(PlanBuilder& plan) {
  const uint32_t input = plan.InputIndex(operands::TypicalPMask::x);
  const rl_value& x = plan.graph().value(input);
  const List list = ListFor(plan, Last(x), plan.MaxRows(x));
  DispatchBuilder dispatch(plan, Shader::kTypicalP, {Wide(plan), list.shared});
  dispatch.Read(input).Write(plan.ResultIndex());
  Place(dispatch, list)
      .Rows(x.dims[0])
      .U32(Last(x))
      .U32(static_cast<int64_t>(list.room))
      .F32(plan.attrs<rl_typical_p_mask_attrs>().p)
      .Emit(static_cast<uint64_t>(plan.MaxRows(x)));
}

void EntropyAccept(PlanBuilder& plan) {
  const uint32_t input = plan.InputIndex(operands::EntropyAccept::entropy);
  const rl_value& x = plan.graph().value(input);
  const List list = ListFor(plan, plan.MaxRows(x), 1);
  DispatchBuilder dispatch(plan, Shader::kEntropyAccept, {kThreads, list.shared});
  dispatch.Read(input).Write(plan.ResultIndex());
  Place(dispatch, list)
      .Rows(x.dims[0])
      .U32(static_cast<int64_t>(list.room))
      .F32(plan.attrs<rl_entropy_accept_attrs>().bound)
      .Emit(1);
}

void Penalties(PlanBuilder& plan) {
  Copy(plan);  // the kernel changes single logits of the copy
  const auto& a = plan.attrs<rl_penalties_attrs>();
  const rl_value& history = plan.Input(operands::Penalties::history);
  const rl_value& y = plan.Result();
  DispatchBuilder dispatch(
      plan, Shader::kPenalties,
      {kThreads, 0, ConstantOf(a.repeat), ConstantOf(a.frequency), ConstantOf(a.presence)});
  for (uint32_t i = 0; i < plan.op().input_count; ++i) dispatch.Read(plan.InputIndex(i));
  dispatch.Write(plan.ResultIndex())
      .Rows(y.dims[0])
      .Extent(plan.Input(operands::Penalties::tokens).dims[0])
      .U32(Last(y))
      .U32(history.dims[0].constant)
      .U32(history.dims[1].constant)
      .U32(a.last_n)
      .U32(plan.op_index() + 1)
      .Emit(static_cast<uint64_t>(plan.MaxRows(y)));
}

void BiasAdd(PlanBuilder& plan) {
  Copy(plan);
  const rl_value& y = plan.Result();
  constexpr rl_dim kNoRows{0, 0, 0};
  DispatchBuilder(plan, Shader::kPenalties, {kThreads, 1})
      .Read(plan.InputIndex(operands::BiasAdd::logits))
      .Read(plan.InputIndex(operands::BiasAdd::ids))
      .Pointer(0)
      .Pointer(0)
      .Pointer(0)
      .Pointer(0)
      .Pointer(0)
      .Read(plan.InputIndex(operands::BiasAdd::bias))
      .Write(plan.ResultIndex())
      .Rows(y.dims[0])
      .Extent(kNoRows)
      .U32(Last(y))
      .U32(plan.Input(operands::BiasAdd::ids).dims[0].constant)
      .U32(0)
      .U32(0)
      .U32(plan.op_index() + 1)
      .Emit(static_cast<uint64_t>(plan.MaxRows(y)));
}

void RandomUniform(PlanBuilder& plan) {
  const rl_value& y = plan.Result();
  DispatchBuilder(plan, Shader::kRandomUniform, {kThreads})
      .Read(plan.InputIndex(operands::RandomUniform::seed))
      .Read(plan.InputIndex(operands::RandomUniform::pos))
      .Read(plan.InputIndex(operands::RandomUniform::slot))
      .Write(plan.ResultIndex())
      .Rows(y.dims[0])
      .U32(plan.attrs<rl_random_uniform_attrs>().stream)
      .Emit((static_cast<uint64_t>(plan.MaxRows(y)) + kThreads - 1) / kThreads);
}

std::string RefuseEntropyAccept(const sdk::GraphView& graph, const rl_op& op,
                                const DeviceLimits& limits) {
  return limits.float64 ? RefusePlain(graph, op, limits) : "the device has no numbers of 64 bits";
}

}  // namespace

const OpRow rows::kCumSum = {RL_OP_cumsum, RefusePlain, CumSum};
const OpRow rows::kTopPMask = {RL_OP_top_p_mask, RefusePlain, TopPMask};
const OpRow rows::kCategorical = {RL_OP_categorical, RefusePlain, Categorical};
const OpRow rows::kTopK = {RL_OP_topk, RefusePlain, TopK};
const OpRow rows::kTypicalPMask = {RL_OP_typical_p_mask, RefusePlain, TypicalPMask};
const OpRow rows::kEntropyAccept = {RL_OP_entropy_accept, RefuseEntropyAccept, EntropyAccept};
const OpRow rows::kPenalties = {RL_OP_penalties, RefusePlain, Penalties};
const OpRow rows::kBiasAdd = {RL_OP_bias_add, RefusePlain, BiasAdd};
const OpRow rows::kRandomUniform = {RL_OP_random_uniform, RefusePlain, RandomUniform};

}  // namespace rullama::gpu
