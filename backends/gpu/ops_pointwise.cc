// unary, binary, scale, affine, select, geglu, softcap.
#include "backends/gpu/plan_builder.h"

namespace rullama::gpu {
namespace {

enum Pointwise : uint32_t {  // of pointwise.comp
  kUnary = 0,
  kBinary = 1,
  kScale = 2,
  kAffine = 3,
  kSelect = 4,
  kGeGlu = 5,
  kSoftcap = 6
};

constexpr uint32_t kThreads = 256;

struct Element {
  Pointwise kind;
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

void Compile(PlanBuilder& plan, const Element& element) {
  const rl_value& y = plan.Result();
  const std::array<int64_t, 3> dims = Inner(y);
  std::array<int64_t, 4> strides{};
  if (element.b != RL_NO_VALUE) {
    const rl_value& b = plan.graph().value(element.b);
    if (element.kind == kScale) {
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
  DispatchBuilder dispatch(plan, Shader::kPointwise,
                           {kThreads, element.kind, static_cast<uint32_t>(element.fn)});
  dispatch.Read(element.a).Read(element.b).Write(plan.ResultIndex());
  dispatch.Rows(y.dims[0]).U32(inner).Align(16);
  for (const int64_t dim : dims) dispatch.U32(dim);
  dispatch.Align(16);
  for (const int64_t stride : strides) dispatch.U32(stride);
  dispatch.F32(element.f0).F32(element.f1);
  dispatch.Go((static_cast<uint64_t>(plan.MostRows(y) * inner) + kThreads - 1) / kThreads);
}

}  // namespace

bool CompilePointwise(PlanBuilder& plan) {
  const uint32_t first = plan.InputIndex(0);
  const uint32_t second = plan.InputIndex(1);
  switch (plan.op().kind) {
    case RL_OP_unary:
      Compile(plan, {.kind = kUnary, .fn = plan.attrs<rl_unary_attrs>().fn, .a = first});
      return true;
    case RL_OP_binary:
      Compile(plan,
              {.kind = kBinary, .fn = plan.attrs<rl_binary_attrs>().fn, .a = first, .b = second});
      return true;
    case RL_OP_scale:
      Compile(plan, {.kind = kScale, .a = first, .b = second});
      return true;
    case RL_OP_affine: {
      const auto& a = plan.attrs<rl_affine_attrs>();
      Compile(plan, {.kind = kAffine, .a = first, .f0 = a.scale, .f1 = a.bias});
      return true;
    }
    case RL_OP_select:
      Compile(plan, {.kind = kSelect,
                     .a = first,
                     .b = second,
                     .f0 = plan.attrs<rl_select_attrs>().otherwise});
      return true;
    case RL_OP_geglu:
      Compile(plan, {.kind = kGeGlu, .a = first, .b = second});
      return true;
    case RL_OP_softcap:
      Compile(plan, {.kind = kSoftcap, .a = first, .f0 = plan.attrs<rl_softcap_attrs>().cap});
      return true;
    default:
      return false;
  }
}

}  // namespace rullama::gpu
