// reduce on f32: sum, max or mean of the last dimension, accumulated in f64.
#include <rullama/sdk/operands.h>

#include <algorithm>
#include <limits>

#include "memory.h"
#include "ops.h"

namespace external {
namespace {

std::string Refuse(const sdk::GraphView& graph, const rl_op& op) {
  const int32_t fn = sdk::GraphView::attrs<rl_reduce_attrs>(op).fn;
  if (fn < 0 || fn > RL_REDUCE_MEAN) return "unknown function";
  return RefuseUnlessF32(graph, op);
}

float Reduce(rl_reduce fn, const float* row, int64_t n) {
  if (fn == RL_REDUCE_MAX) return *std::max_element(row, row + n);
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += row[i];
  return static_cast<float>(fn == RL_REDUCE_MEAN ? sum / static_cast<double>(n) : sum);
}

Kernel Build(const sdk::GraphView& graph, const rl_op& op) {
  const rl_value& x = *graph.input(op, rullama::operands::Reduce::x);
  return [from = Source<float>(x), to = Target<float>(graph.result(op)), shape = sdk::Shape(x),
          fn = static_cast<rl_reduce>(sdk::GraphView::attrs<rl_reduce_attrs>(op).fn)](int64_t t,
                                                                                      int64_t r) {
    const int64_t n = shape.dim(shape.rank() - 1, t, r);
    const int64_t rows = shape.elements(t, r) / n;
    for (int64_t i = 0; i < rows; ++i) to[i] = Reduce(fn, from + i * n, n);
  };
}

}  // namespace

const OpRow kReduce = {RL_OP_reduce, Refuse, Build};

}  // namespace external
