// matmul of f32 rows with a weight of f32, f16 or bf16, in both orders, accumulated in f64.
#include <rullama/sdk/half.h>
#include <rullama/sdk/operands.h>

#include "memory.h"
#include "ops.h"

namespace external {
namespace {

using rullama::operands::MatMul;

std::string Refuse(const sdk::GraphView& graph, const rl_op& op) {
  const uint32_t dtype = graph.input(op, MatMul::weight)->dtype;
  const bool plain = dtype == RL_DTYPE_F32 || dtype == RL_DTYPE_F16 || dtype == RL_DTYPE_BF16;
  return plain ? "" : "only f32, f16 and bf16 weights";
}

float ToFloat(float value) { return value; }
struct Half {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};
float ToFloat(Half value) { return rullama::HalfToFloat(value.bits); }
float ToFloat(BFloat16 value) { return rullama::BFloat16ToFloat(value.bits); }

template <typename Weight>
Kernel BuildFor(const sdk::GraphView& graph, const rl_op& op) {
  const rl_value& x = *graph.input(op, MatMul::x);
  const rl_value& y = graph.result(op);
  const bool transposed = sdk::GraphView::attrs<rl_matmul_attrs>(op).transpose_weight != 0;
  return [x_rows = Source<float>(x), weight = Source<Weight>(*graph.input(op, MatMul::weight)),
          y_rows = Target<float>(y), x_shape = sdk::Shape(x), y_shape = sdk::Shape(y),
          transposed](int64_t t, int64_t r) {
    const int64_t k = x_shape.row_elements(t, r), n = y_shape.row_elements(t, r);
    // weight[n, k] is transposed, weight[k, n] as stored.
    const int64_t row_step = transposed ? k : 1, inner_step = transposed ? 1 : n;
    for (int64_t i = 0; i < y_shape.rows(t, r); ++i) {
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (int64_t l = 0; l < k; ++l) {
          sum += double{x_rows[i * k + l]} * ToFloat(weight[j * row_step + l * inner_step]);
        }
        y_rows[i * n + j] = static_cast<float>(sum);
      }
    }
  };
}

Kernel Build(const sdk::GraphView& graph, const rl_op& op) {
  switch (graph.input(op, MatMul::weight)->dtype) {
    case RL_DTYPE_F32:
      return BuildFor<float>(graph, op);
    case RL_DTYPE_F16:
      return BuildFor<Half>(graph, op);
    case RL_DTYPE_BF16:
      return BuildFor<BFloat16>(graph, op);
    default:
      throw sdk::Error(RL_UNSUPPORTED, "only f32, f16 and bf16 weights");
  }
}

}  // namespace

const OpRow kMatMul = {RL_OP_matmul, Refuse, Build};

}  // namespace external
