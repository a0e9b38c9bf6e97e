#include "ops.h"

namespace external {
namespace {

constexpr const OpRow* kRows[] = {&kReshape, &kSlice, &kConcat, &kCopy,   &kUnary,
                                  &kBinary,  &kScale, &kAffine, &kReduce, &kMatMul};

}  // namespace

const sdk::OpTable<OpRow>& Ops() {
  static constexpr sdk::OpTable<OpRow> kTable(kRows);
  return kTable;
}

std::string RefuseUnlessF32(const sdk::GraphView& graph, const rl_op& op) {
  bool f32 = true;
  for (uint32_t i = 0; i < op.input_count; ++i) {
    const rl_value* input = graph.input(op, i);
    if (input != nullptr) f32 = f32 && input->dtype == RL_DTYPE_F32;
  }
  for (uint32_t i = 0; i < op.result_count; ++i) {
    f32 = f32 && graph.result(op, i).dtype == RL_DTYPE_F32;
  }
  return f32 ? "" : "only f32";
}

}  // namespace external
