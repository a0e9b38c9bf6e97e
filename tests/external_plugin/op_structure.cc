// copy, reshape, slice and concat of plain dtypes: bytes that move.
#include <rullama/sdk/operands.h>

#include <cstring>

#include "memory.h"
#include "ops.h"

namespace external {
namespace {

namespace operands = rullama::operands;
static_assert(uint32_t{operands::Copy::x} == uint32_t{operands::Reshape::x});

std::string RefuseNothing(const sdk::GraphView&, const rl_op&) { return {}; }

int64_t ElementBytes(const rl_value& value) {
  return static_cast<int64_t>(rullama::RowBytes(static_cast<rullama::DType>(value.dtype), 1));
}

// Elements before an axis (the rows of a step included), and from it on.
struct Split {
  int64_t outer = 1;
  int64_t inner = 1;
};
Split SplitAt(const sdk::Shape& shape, uint32_t axis, int64_t t, int64_t r) {
  Split split;
  for (uint32_t i = 0; i < shape.rank(); ++i) {
    (i < axis ? split.outer : split.inner) *= shape.dim(i, t, r);
  }
  return split;
}

// Copy and reshape; both have one operand.
Kernel BuildCopy(const sdk::GraphView& graph, const rl_op& op) {
  const rl_value& y = graph.result(op);
  return [from = Source<std::byte>(*graph.input(op, operands::Copy::x)), to = Target<std::byte>(y),
          shape = sdk::Shape(y), size = ElementBytes(y)](int64_t t, int64_t r) {
    std::memmove(to, from, static_cast<size_t>(shape.elements(t, r) * size));
  };
}

Kernel BuildSlice(const sdk::GraphView& graph, const rl_op& op) {
  const auto& attrs = sdk::GraphView::attrs<rl_slice_attrs>(op);
  const rl_value& x = *graph.input(op, operands::Slice::x);
  const rl_value& y = graph.result(op);
  return [from = Source<std::byte>(x), to = Target<std::byte>(y), x_shape = sdk::Shape(x),
          y_shape = sdk::Shape(y), size = ElementBytes(x), axis = static_cast<uint32_t>(attrs.axis),
          start = attrs.start](int64_t t, int64_t r) {
    const Split x_split = SplitAt(x_shape, axis, t, r);
    const Split y_split = SplitAt(y_shape, axis, t, r);
    const int64_t skipped = start * (x_split.inner / x_shape.dim(axis, t, r));
    for (int64_t i = 0; i < y_split.outer; ++i) {
      std::memcpy(to + i * y_split.inner * size, from + (i * x_split.inner + skipped) * size,
                  static_cast<size_t>(y_split.inner * size));
    }
  };
}

Kernel BuildConcat(const sdk::GraphView& graph, const rl_op& op) {
  const auto& attrs = sdk::GraphView::attrs<rl_concat_attrs>(op);
  const rl_value& a = *graph.input(op, operands::Concat::a);
  const rl_value& b = *graph.input(op, operands::Concat::b);
  const rl_value& y = graph.result(op);
  return [from_a = Source<std::byte>(a), from_b = Source<std::byte>(b), to = Target<std::byte>(y),
          a_shape = sdk::Shape(a), b_shape = sdk::Shape(b), size = ElementBytes(y),
          axis = static_cast<uint32_t>(attrs.axis)](int64_t t, int64_t r) {
    const Split a_split = SplitAt(a_shape, axis, t, r);
    const Split b_split = SplitAt(b_shape, axis, t, r);
    std::byte* at = to;
    for (int64_t i = 0; i < a_split.outer; ++i) {
      const auto a_bytes = static_cast<size_t>(a_split.inner * size);
      const auto b_bytes = static_cast<size_t>(b_split.inner * size);
      std::memcpy(at, from_a + static_cast<size_t>(i) * a_bytes, a_bytes);
      std::memcpy(at + a_bytes, from_b + static_cast<size_t>(i) * b_bytes, b_bytes);
      at += a_bytes + b_bytes;
    }
  };
}

}  // namespace

const OpRow kCopy = {RL_OP_copy, RefuseNothing, BuildCopy};
const OpRow kReshape = {RL_OP_reshape, RefuseNothing, BuildCopy};
const OpRow kSlice = {RL_OP_slice, RefuseNothing, BuildSlice};
const OpRow kConcat = {RL_OP_concat, RefuseNothing, BuildConcat};

}  // namespace external
