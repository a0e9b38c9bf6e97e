// Ops that are one kernel which takes an element of the result at a time (RL_PLAIN): their rows and
// dispatches follow from kernels.def.
#include <rullama/sdk/operands.h>

#include "backends/gpu/dispatch_builder.h"
#include "backends/gpu/graph_facts.h"
#include "backends/gpu/matrix_product.h"
#include "backends/gpu/op_rows.h"
#include "backends/gpu/plan_builder.h"

namespace rullama::gpu {
namespace {

constexpr uint32_t kPlainThreads = 256;

// The op of a plan that arguments are taken from. `OperandNames`: of <rullama/sdk/operands.h>.
template <typename OperandNames, typename Attributes>
struct PlainOp {
  using Names = OperandNames;
  PlanBuilder& plan;
  Attributes attributes = plan.attrs<Attributes>();
  uint32_t result = 0;  // the next one

  uint32_t NextResult() { return plan.ResultIndex(result++); }
};

// Im2ColOf<kernels::Im2ColArgs>(op): the arguments of a kernel. The templates of kernels that are
// not plain are never used.
#define RL_RECORD(Name) RL_ARGUMENTS(Name)
#define RL_ARGUMENTS(Name)                          \
  template <typename Args, typename Op>             \
  Args Name##Of([[maybe_unused]] Op op) {           \
    using In [[maybe_unused]] = typename Op::Names; \
    return Args {
#define RL_END(Name) \
  }                  \
  ;                  \
  }
#define RL_INPUT(name) .name = op.plan.InputIndex(In::name),
#define RL_OUTPUT(name) .name = op.NextResult(),
#define RL_ROWS(name) .name = op.plan.Result().dims[0],
#define RL_ROWS_OF(name, operand) .name = op.plan.Input(In::operand).dims[0],
#define RL_SIZE_OF(name, operand, axis) .name = op.plan.Input(In::operand).dims[axis].constant,
#define RL_ROW_ELEMENTS(name) .name = RowElements(op.plan.Result()),
#define RL_ATTRIBUTE_U32(name, attribute) .name = op.attributes.attribute,
#define RL_ATTRIBUTE_F32(name, attribute) .name = op.attributes.attribute,
#include "backends/gpu/kernels.def"

template <typename Kernel>
void EmitElements(PlanBuilder& plan, const typename Kernel::Args& args) {
  const rl_value& y = plan.Result();
  DispatchBuilder(plan, Kernel{.threads = kPlainThreads}, args)
      .Emit(CeilDiv(static_cast<uint64_t>(plan.MaxRows(y) * RowElements(y)), kPlainThreads));
}

#define RL_PLAIN(Name, name)                                                    \
  void Emit##Name(PlanBuilder& plan) {                                          \
    using Op = PlainOp<operands::Name, rl_##name##_attrs>;                      \
    EmitElements<kernels::Name>(plan, Name##Of<kernels::Name::Args>(Op{plan})); \
  }
#include "backends/gpu/kernels.def"

}  // namespace

#define RL_PLAIN(Name, name) const OpRow rows::k##Name = {RL_OP_##name, RefusePlain, Emit##Name};
#include "backends/gpu/kernels.def"

}  // namespace rullama::gpu
