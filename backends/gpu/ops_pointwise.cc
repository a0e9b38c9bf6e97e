// unary, binary, scale, affine, select, geglu, softcap, clamp, add_vector.
#include <rullama/sdk/operands.h>

#include "backends/gpu/matrix_product.h"
#include "backends/gpu/op_rows.h"

namespace rullama::gpu {
namespace {

constexpr uint32_t kPointwiseThreads = 256;

struct Element {
  uint32_t op;
  int32_t fn = 0;
  uint32_t a = 0;
  uint32_t b = RL_NO_VALUE;
  float f0 = 0, f1 = 0;
};

// The inner dimensions of a value, right-aligned to three.
std::array<int64_t, 3> Inner(const rl_value& value) {
  std::array<int64_t, 3> dims{1, 1, 1};
  for (uint32_t axis = 1; axis < value.rank; ++axis) {
    dims[3 - value.rank + axis] = value.dims[axis].constant;
  }
  return dims;
}

void Emit(PlanBuilder& plan, const Element& element) {
  const rl_value& y = plan.Result();
  const std::array<int64_t, 3> dims = Inner(y);
  std::array<int64_t, 4> strides{};
  if (element.b != RL_NO_VALUE && element.op != RL_OP_add_vector) {
    const rl_value& b = plan.graph().value(element.b);
    if (element.op == RL_OP_scale) {
      strides[3] = b.dims[0].constant == 1 ? 0 : 1;
    } else {
      const std::array<int64_t, 3> other = Inner(b);
      int64_t stride = 1;
      for (size_t axis = 3; axis-- > 0;) {
        strides[axis + 1] = other[axis] == 1 ? 0 : stride;
        stride *= other[axis];
      }
      strides[0] = stride;
    }
  }
  const int64_t inner = RowElements(y);
  DispatchBuilder(
      plan, kernels::Pointwise{.threads = kPointwiseThreads, .op = element.op, .fn = element.fn},
      {.a = element.a,
       .b = element.b,
       .y = plan.ResultIndex(),
       .rows = y.dims[0],
       .inner = inner,
       .size_1 = dims[0],
       .size_2 = dims[1],
       .size_3 = dims[2],
       .stride_0 = strides[0],
       .stride_1 = strides[1],
       .stride_2 = strides[2],
       .stride_3 = strides[3],
       .f0 = element.f0,
       .f1 = element.f1})
      .Emit((static_cast<uint64_t>(plan.MaxRows(y) * inner) + kPointwiseThreads - 1) /
            kPointwiseThreads);
}

void Unary(PlanBuilder& plan) {
  Emit(plan, {.op = RL_OP_unary,
              .fn = plan.attrs<rl_unary_attrs>().fn,
              .a = plan.InputIndex(operands::Unary::x)});
}

void Binary(PlanBuilder& plan) {
  Emit(plan, {.op = RL_OP_binary,
              .fn = plan.attrs<rl_binary_attrs>().fn,
              .a = plan.InputIndex(operands::Binary::a),
              .b = plan.InputIndex(operands::Binary::b)});
}

void Scale(PlanBuilder& plan) {
  Emit(plan, {.op = RL_OP_scale,
              .a = plan.InputIndex(operands::Scale::x),
              .b = plan.InputIndex(operands::Scale::weight)});
}

void Affine(PlanBuilder& plan) {
  const auto& a = plan.attrs<rl_affine_attrs>();
  Emit(
      plan,
      {.op = RL_OP_affine, .a = plan.InputIndex(operands::Affine::x), .f0 = a.scale, .f1 = a.bias});
}

void Select(PlanBuilder& plan) {
  Emit(plan, {.op = RL_OP_select,
              .a = plan.InputIndex(operands::Select::condition),
              .b = plan.InputIndex(operands::Select::a),
              .f0 = plan.attrs<rl_select_attrs>().otherwise});
}

void GeGlu(PlanBuilder& plan) {
  const uint32_t gate = plan.InputIndex(operands::GeGlu::gate);
  const uint32_t up = plan.InputIndex(operands::GeGlu::up);
  if (plan.node().StoresHalfRows()) {
    const Epilogue& clamp = plan.node().epilogue;
    HalfSource source{.x = gate, .up = up};
    if (clamp.kind == EpilogueKind::kClamp) {
      source.low = clamp.low;
      source.high = clamp.high;
    }
    EmitHalfRows(plan, source);
  } else {
    Emit(plan, {.op = RL_OP_geglu, .a = gate, .b = up});
  }
}

void Clamp(PlanBuilder& plan) {
  const auto& a = plan.attrs<rl_clamp_attrs>();
  const uint32_t x = plan.InputIndex(operands::Clamp::x);
  if (plan.node().StoresHalfRows()) {
    EmitHalfRows(plan, {.x = x, .low = a.lo, .high = a.hi});
  } else {
    Emit(plan, {.op = RL_OP_clamp, .a = x, .f0 = a.lo, .f1 = a.hi});
  }
}

void AddVector(PlanBuilder& plan) {
  Emit(plan, {.op = RL_OP_add_vector,
              .a = plan.InputIndex(operands::AddVector::x),
              .b = plan.InputIndex(operands::AddVector::vector)});
}

void Softcap(PlanBuilder& plan) {
  Emit(plan, {.op = RL_OP_softcap,
              .a = plan.InputIndex(operands::Softcap::x),
              .f0 = plan.attrs<rl_softcap_attrs>().cap});
}

}  // namespace

void AddTo(PlanBuilder& plan, const Operand& y, const Operand& x, const rl_dim& rows, int64_t n) {
  DispatchBuilder(
      plan,
      kernels::Pointwise{.threads = kPointwiseThreads, .op = RL_OP_binary, .fn = RL_BINARY_ADD},
      {.a = y,
       .b = x,
       .y = y,
       .rows = rows,
       .inner = n,
       .size_1 = 1,
       .size_2 = 1,
       .size_3 = n,
       .stride_0 = n,
       .stride_1 = 0,
       .stride_2 = 0,
       .stride_3 = 1,
       .f0 = 0,
       .f1 = 0})
      .Emit(CeilDiv(static_cast<uint64_t>(plan.Max(rows) * n), kPointwiseThreads));
}

const OpRow rows::kUnary = {RL_OP_unary, RefusePlain, Unary};
const OpRow rows::kBinary = {RL_OP_binary, RefusePlain, Binary};
const OpRow rows::kScale = {RL_OP_scale, RefusePlain, Scale};
const OpRow rows::kAffine = {RL_OP_affine, RefusePlain, Affine};
const OpRow rows::kSelect = {RL_OP_select, RefusePlain, Select};
const OpRow rows::kGeGlu = {RL_OP_geglu, RefusePlain, GeGlu};
const OpRow rows::kClamp = {RL_OP_clamp, RefusePlain, Clamp};
const OpRow rows::kAddVector = {RL_OP_add_vector, RefusePlain, AddVector};
const OpRow rows::kSoftcap = {RL_OP_softcap, RefusePlain, Softcap};

}  // namespace rullama::gpu
