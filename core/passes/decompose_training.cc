// Decompositions of the losses and derivatives.
#include "core/passes/decompositions.h"

namespace rullama::decompositions {
namespace {

// The targets of a loss among n classes. Those that do not count may be any number, so they are
// replaced before anything is gathered or scattered with them. In f32 every integer up to n is
// exact.
struct Targets {
  ValueId counts;  // f32[rows]: 1 or 0
  ValueId number;  // f32[rows]
};
Targets AddTargets(const Site& s, ValueId targets, int64_t n) {
  GraphBuilder& b = s.b;
  const ValueId number = b.Add(ops::Cast{.x = targets, .dtype = DType::kF32}, s.Part("target"));
  const ValueId zero = b.Add(ops::Affine{.x = number, .scale = 0, .bias = 0}, s.Part("zero"));
  const ValueId end =
      b.Add(ops::Affine{.x = zero, .scale = 1, .bias = static_cast<float>(n)}, s.Part("end"));
  const ValueId from =
      b.Add(ops::Binary{.a = zero, .b = number, .fn = RL_BINARY_LE}, s.Part("not_negative"));
  const ValueId below =
      b.Add(ops::Binary{.a = number, .b = end, .fn = RL_BINARY_LT}, s.Part("below_end"));
  return {b.Add(ops::Product(from, below), s.Part("counts")), number};
}

// i32[rows]: the target, or `otherwise` where it does not count.
ValueId AddIndex(const Site& s, const Targets& targets, float otherwise) {
  const ValueId number =
      s.b.Add(ops::Select{.condition = targets.counts, .a = targets.number, .otherwise = otherwise},
              s.Part("number"));
  return s.b.Add(ops::Cast{.x = number, .dtype = DType::kI32}, s.Part("index"));
}

int64_t ColumnsOf(const Site& s, ValueId value) {
  return s.b.ok() ? s.b.graph().type(value).last().constant : 0;
}

}  // namespace

// ln(sum) + (max - logit): the difference first, because the logarithm is small compared with both.
// A row of only -inf has ln(1) + (0 - -inf).
ValueId CrossEntropy(const Site& s, const ops::CrossEntropy& op) {
  GraphBuilder& b = s.b;
  const Targets targets = AddTargets(s, op.targets, ColumnsOf(s, op.logits));
  const Exponentials e = AddExponentials(s, op.logits);
  const ValueId log = b.Add(ops::Unary{.x = e.divisor, .fn = RL_UNARY_LOG}, s.Part("log"));
  const ValueId logit =
      b.Add(ops::GatherLast{.x = op.logits, .index = AddIndex(s, targets, 0)}, s.Part("logit"));
  const ValueId offset = b.Add(ops::ReshapeTo(e.offset, {}), s.Part("row_offset"));
  const ValueId distance =
      b.Add(ops::Binary{.a = offset, .b = logit, .fn = RL_BINARY_SUB}, s.Part("distance"));
  const ValueId loss =
      b.Add(ops::Sum(b.Add(ops::ReshapeTo(log, {}), s.Part("row_log")), distance), s.Part("loss"));
  return b.Add(ops::Select{.condition = targets.counts, .a = loss, .otherwise = 0}, s.name);
}

// The mask is onehot < counts, with -1 at the target and 0 elsewhere: both are less than 1 in a row
// that counts, neither than 0 in one that does not. A product with a mask would keep NaN.
ValueId CrossEntropyGrad(const Site& s, const ops::CrossEntropyGrad& op) {
  GraphBuilder& b = s.b;
  const int64_t n = ColumnsOf(s, op.logits);
  const Targets targets = AddTargets(s, op.targets, n);
  const ValueId minus_one =
      b.Add(ops::Affine{.x = targets.counts, .scale = 0, .bias = -1}, s.Part("minus_one"));
  const ValueId onehot =
      b.Add(ops::ScatterLast{.x = minus_one, .index = AddIndex(s, targets, -1), .n = n},
            s.Part("onehot"));
  const ValueId column = b.Add(ops::ReshapeTo(targets.counts, {1}), s.Part("column"));
  const ValueId mask =
      b.Add(ops::Binary{.a = onehot, .b = column, .fn = RL_BINARY_LT}, s.Part("mask"));
  const ValueId p = b.Add(ops::Softmax{op.logits}, s.Part("probability"));
  const ValueId grad = b.Add(ops::Sum(p, onehot), s.Part("grad"));
  const ValueId scaled = b.Add(ops::Scale{.x = grad, .weight = op.factor}, s.Part("scaled"));
  return b.Add(ops::Select{.condition = mask, .a = scaled, .otherwise = 0}, s.name);
}

// d softcap(z) / dz = 1 - (y / cap)^2 with y = softcap(z). A row that does not count has zeros in
// the derivative by y and keeps them, whatever y is.
ops::LinearCrossEntropy::Results LinearCrossEntropy(const Site& s,
                                                    const ops::LinearCrossEntropy& op) {
  GraphBuilder& b = s.b;
  const ValueId z = b.Add(ops::Linear(op.x, op.weight), s.Part("product"));
  const bool capped = op.cap > 0;
  const ValueId y = capped ? b.Add(ops::Softcap{.x = z, .cap = op.cap}, s.Part("logits")) : z;
  const ValueId loss = b.Add(ops::CrossEntropy{.logits = y, .targets = op.targets}, s.names[0]);
  ValueId grad =
      b.Add(ops::CrossEntropyGrad{.logits = y, .targets = op.targets, .factor = op.factor},
            s.Part("dlogits"));
  if (capped) {
    const ValueId ratio =
        b.Add(ops::Affine{.x = y, .scale = 1.0F / op.cap, .bias = 0}, s.Part("ratio"));
    const ValueId square = b.Add(ops::Unary{.x = ratio, .fn = RL_UNARY_SQUARE}, s.Part("square"));
    const ValueId slope = b.Add(ops::Affine{.x = square, .scale = -1, .bias = 1}, s.Part("slope"));
    const ValueId product = b.Add(ops::Product(grad, slope), s.Part("sloped"));
    grad = b.Add(ops::Select{.condition = grad, .a = product, .otherwise = 0}, s.Part("dproduct"));
  }
  return {.loss = loss, .dx = b.Add(ops::MatMul{.x = grad, .weight = op.weight}, s.names[1])};
}

ValueId SoftmaxGrad(const Site& s, const ops::SoftmaxGrad& op) {
  GraphBuilder& b = s.b;
  const auto where_mass = [&](ValueId a, const std::string& name) {
    return b.Add(ops::Select{.condition = op.y, .a = a, .otherwise = 0}, name);
  };
  const ValueId product =
      where_mass(b.Add(ops::Product(op.y, op.dy), s.Part("product")), s.Part("terms"));
  const ValueId sum = b.Add(ops::Reduce{.x = product, .fn = RL_REDUCE_SUM}, s.Part("sum"));
  const ValueId difference =
      b.Add(ops::Binary{.a = op.dy, .b = sum, .fn = RL_BINARY_SUB}, s.Part("difference"));
  return where_mass(b.Add(ops::Product(op.y, difference), s.Part("weighted")), s.name);
}

ValueId RmsNormGrad(const Site& s, const ops::RmsNormGrad& op) {
  GraphBuilder& b = s.b;
  const ValueId g = op.weight == kNoValue
                        ? op.dy
                        : b.Add(ops::Scale{.x = op.dy, .weight = op.weight}, s.Part("scaled"));
  const ValueId square = b.Add(ops::Unary{.x = op.x, .fn = RL_UNARY_SQUARE}, s.Part("square"));
  const ValueId mean = b.Add(ops::Reduce{.x = square, .fn = RL_REDUCE_MEAN}, s.Part("mean"));
  const ValueId shifted =
      b.Add(ops::Affine{.x = mean, .scale = 1, .bias = op.eps}, s.Part("mean_eps"));
  const ValueId r = b.Add(ops::Unary{.x = shifted, .fn = RL_UNARY_RSQRT}, s.Part("rsqrt"));
  const ValueId product = b.Add(ops::Product(g, op.x), s.Part("product"));
  const ValueId projection =
      b.Add(ops::Reduce{.x = product, .fn = RL_REDUCE_MEAN}, s.Part("projection"));
  const ValueId r_squared = b.Add(ops::Unary{.x = r, .fn = RL_UNARY_SQUARE}, s.Part("r_squared"));
  const ValueId share = b.Add(ops::Product(projection, r_squared), s.Part("share"));
  const ValueId along = b.Add(ops::Product(op.x, share), s.Part("along"));
  const ValueId across =
      b.Add(ops::Binary{.a = g, .b = along, .fn = RL_BINARY_SUB}, s.Part("across"));
  return b.Add(ops::Product(across, r), s.name);
}

ops::GeGluGrad::Results GeGluGrad(const Site& s, const ops::GeGluGrad& op) {
  GraphBuilder& b = s.b;
  const ValueId slope =
      b.Add(ops::Unary{.x = op.gate, .fn = RL_UNARY_GELU_TANH_GRAD}, s.Part("slope"));
  const ValueId product = b.Add(ops::Product(op.dy, op.up), s.Part("product"));
  const ValueId gelu = b.Add(ops::Unary{.x = op.gate, .fn = RL_UNARY_GELU_TANH}, s.Part("gelu"));
  return {.dgate = b.Add(ops::Product(product, slope), s.names[0]),
          .dup = b.Add(ops::Product(op.dy, gelu), s.names[1])};
}

}  // namespace rullama::decompositions
