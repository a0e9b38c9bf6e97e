// unary, binary, scale and affine on f32.
#include <rullama/sdk/operands.h>

#include <cmath>
#include <limits>

#include "memory.h"
#include "ops.h"

namespace external {
namespace {

namespace operands = rullama::operands;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

float GeluTanh(float x) {
  constexpr float kSqrt2OverPi = 0.79788456F;
  constexpr float kCubic = 0.044715F;
  return 0.5F * x * (1 + std::tanh(kSqrt2OverPi * (x + kCubic * x * x * x)));
}

// Its derivative, which is 1 or 0 to the last bit where |x| > 10; x^3 overflows further out.
float GeluTanhGrad(float x) {
  if (std::abs(x) > 10) return x > 0 ? 1.0F : 0.0F;
  constexpr float kSqrt2OverPi = 0.79788456F;
  constexpr float kCubic = 0.044715F;
  const float t = std::tanh(kSqrt2OverPi * (x + kCubic * x * x * x));
  return 0.5F * (1 + t) + 0.5F * x * (1 - t * t) * kSqrt2OverPi * (1 + 3 * kCubic * x * x);
}

float Apply(rl_unary fn, float x) {
  switch (fn) {
    case RL_UNARY_NEG:
      return -x;
    case RL_UNARY_ABS:
      return std::abs(x);
    case RL_UNARY_EXP:
      return std::exp(x);
    case RL_UNARY_LOG:
      return std::log(x);
    case RL_UNARY_SQRT:
      return std::sqrt(x);
    case RL_UNARY_RSQRT:
      return 1 / std::sqrt(x);
    case RL_UNARY_TANH:
      return std::tanh(x);
    case RL_UNARY_SIGMOID:
      return 1 / (1 + std::exp(-x));
    case RL_UNARY_GELU_TANH:
      return GeluTanh(x);
    case RL_UNARY_SILU:
      return x / (1 + std::exp(-x));
    case RL_UNARY_SQUARE:
      return x * x;
    case RL_UNARY_GELU_TANH_GRAD:
      return GeluTanhGrad(x);
  }
  return kNaN;
}

float Apply(rl_binary fn, float a, float b) {
  switch (fn) {
    case RL_BINARY_ADD:
      return a + b;
    case RL_BINARY_SUB:
      return a - b;
    case RL_BINARY_MUL:
      return a * b;
    case RL_BINARY_DIV:
      return a / b;
    case RL_BINARY_MIN:
      return a < b ? a : b;
    case RL_BINARY_MAX:
      return a > b ? a : b;
    case RL_BINARY_LT:
      return a < b ? 1.0F : 0.0F;
    case RL_BINARY_LE:
      return a <= b ? 1.0F : 0.0F;
    case RL_BINARY_EQ:
      return a == b ? 1.0F : 0.0F;
  }
  return kNaN;
}

// A function that a newer host knows and this plugin does not is refused, not guessed.
template <typename Attrs, int kLast>
std::string RefuseUnknownFunction(const sdk::GraphView& graph, const rl_op& op) {
  const int32_t fn = sdk::GraphView::attrs<Attrs>(op).fn;
  if (fn < 0 || fn > kLast) return "unknown function";
  return RefuseUnlessF32(graph, op);
}

Kernel BuildUnary(const sdk::GraphView& graph, const rl_op& op) {
  const rl_value& y = graph.result(op);
  return [from = Source<float>(*graph.input(op, operands::Unary::x)), to = Target<float>(y),
          shape = sdk::Shape(y),
          fn = static_cast<rl_unary>(sdk::GraphView::attrs<rl_unary_attrs>(op).fn)](int64_t t,
                                                                                    int64_t r) {
    const int64_t elements = shape.elements(t, r);
    for (int64_t i = 0; i < elements; ++i) to[i] = Apply(fn, from[i]);
  };
}

// Each inner dimension of b is that of a, or 1: then its stride is 0.
Kernel BuildBinary(const sdk::GraphView& graph, const rl_op& op) {
  const rl_value& b = *graph.input(op, operands::Binary::b);
  const rl_value& y = graph.result(op);
  return [from_a = Source<float>(*graph.input(op, operands::Binary::a)), from_b = Source<float>(b),
          to = Target<float>(y), b_shape = sdk::Shape(b), shape = sdk::Shape(y),
          fn = static_cast<rl_binary>(sdk::GraphView::attrs<rl_binary_attrs>(op).fn)](int64_t t,
                                                                                      int64_t r) {
    const int64_t elements = shape.elements(t, r);
    for (int64_t i = 0; i < elements; ++i) {
      int64_t rest = i, b_index = 0, b_stride = 1;
      for (uint32_t axis = shape.rank(); axis-- > 0;) {
        const int64_t dim = shape.dim(axis, t, r), b_dim = b_shape.dim(axis, t, r);
        if (b_dim != 1) b_index += rest % dim * b_stride;
        b_stride *= b_dim;
        rest /= dim;
      }
      to[i] = Apply(fn, from_a[i], from_b[b_index]);
    }
  };
}

Kernel BuildScale(const sdk::GraphView& graph, const rl_op& op) {
  const rl_value& weight = *graph.input(op, operands::Scale::weight);
  const rl_value& y = graph.result(op);
  return [from = Source<float>(*graph.input(op, operands::Scale::x)), by = Source<float>(weight),
          to = Target<float>(y), n = sdk::Shape(weight).dim(0, 0, 0),
          shape = sdk::Shape(y)](int64_t t, int64_t r) {
    const int64_t elements = shape.elements(t, r);
    for (int64_t i = 0; i < elements; ++i) to[i] = from[i] * by[i % n];
  };
}

Kernel BuildAffine(const sdk::GraphView& graph, const rl_op& op) {
  const auto& attrs = sdk::GraphView::attrs<rl_affine_attrs>(op);
  const rl_value& y = graph.result(op);
  return [from = Source<float>(*graph.input(op, operands::Affine::x)), to = Target<float>(y),
          shape = sdk::Shape(y), scale = attrs.scale, bias = attrs.bias](int64_t t, int64_t r) {
    const int64_t elements = shape.elements(t, r);
    for (int64_t i = 0; i < elements; ++i) to[i] = from[i] * scale + bias;
  };
}

}  // namespace

const OpRow kUnary = {RL_OP_unary, RefuseUnknownFunction<rl_unary_attrs, RL_UNARY_GELU_TANH_GRAD>,
                      BuildUnary};
const OpRow kBinary = {RL_OP_binary, RefuseUnknownFunction<rl_binary_attrs, RL_BINARY_EQ>,
                       BuildBinary};
const OpRow kScale = {RL_OP_scale, RefuseUnlessF32, BuildScale};
const OpRow kAffine = {RL_OP_affine, RefuseUnlessF32, BuildAffine};

}  // namespace external
