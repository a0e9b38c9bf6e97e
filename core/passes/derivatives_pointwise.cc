// Derivatives of pointwise ops, reductions and softmax.
#include "core/passes/derivatives.h"

namespace rullama::derivatives {
namespace {

ValueId Scaled(Site& s, ValueId x, float scale, float bias, const std::string& name) {
  return s.b.Add(ops::Affine{.x = x, .scale = scale, .bias = bias}, name);
}

ValueId Apply(Site& s, ValueId x, rl_unary fn, const std::string& name) {
  return s.b.Add(ops::Unary{.x = x, .fn = fn}, name);
}

// Zeros of the shape of x, whatever x is: nothing is less than itself.
ValueId Zeros(Site& s, ValueId x) {
  return s.b.Add(ops::Binary{.a = x, .b = x, .fn = RL_BINARY_LT}, s.Part("zeros"));
}

ValueId Negated(Site& s, ValueId condition) {
  return Scaled(s, condition, -1, 1, s.Part("negated"));
}

ValueId Selected(Site& s, ValueId condition, const std::string& name) {
  return s.b.Add(ops::Select{.condition = condition, .a = s.dy(), .otherwise = 0}, name);
}

// The factor fn'(x) of each function. y is fn(x).
ValueId UnarySlope(Site& s, rl_unary fn, ValueId x, ValueId y) {
  const std::string slope = s.Part("slope");
  const std::string square = s.Part("square");
  switch (fn) {
    case RL_UNARY_EXP:
      return y;
    case RL_UNARY_SQUARE:
      return Scaled(s, x, 2, 0, slope);
    case RL_UNARY_TANH:
      return Scaled(s, Apply(s, y, RL_UNARY_SQUARE, square), -1, 1, slope);
    case RL_UNARY_SIGMOID:  // y (1 - y)
      return s.b.Add(ops::Product(y, Scaled(s, y, -1, 1, s.Part("rest"))), slope);
    case RL_UNARY_SILU: {  // sigmoid + y (1 - sigmoid)
      const ValueId sigmoid = Apply(s, x, RL_UNARY_SIGMOID, s.Part("sigmoid"));
      const ValueId rest = Scaled(s, sigmoid, -1, 1, s.Part("rest"));
      return s.b.Add(ops::Sum(sigmoid, s.b.Add(ops::Product(y, rest), s.Part("tail"))), slope);
    }
    case RL_UNARY_RSQRT: {  // -y^3 / 2
      const ValueId cube =
          s.b.Add(ops::Product(Apply(s, y, RL_UNARY_SQUARE, square), y), s.Part("cube"));
      return Scaled(s, cube, -0.5F, 0, slope);
    }
    case RL_UNARY_GELU_TANH:
      return Apply(s, x, RL_UNARY_GELU_TANH_GRAD, slope);
    default:
      return kNoValue;
  }
}

// The sum over the dimensions along which an operand of type `to` was broadcast: some last ones.
// kNoValue if they were others.
ValueId SumTo(Site& s, ValueId x, const TensorType& to, const char* part) {
  const TensorType from = s.type(x);
  int kept = 0;
  while (kept < to.rank && to.dim(kept) == from.dim(kept)) ++kept;
  if (kept == to.rank) return x;
  int64_t broadcast = 1;
  for (int axis = kept; axis < to.rank; ++axis) {
    if (to.dim(axis) != Dim(1)) return kNoValue;
    broadcast *= from.dim(axis).constant;
  }
  ops::Reshape flat{.x = x, .rank = kept + 1};
  ops::Reshape shaped{.rank = to.rank, .d1 = 1, .d2 = 1, .d3 = 1};
  int64_t* const flat_dims[] = {&flat.d1, &flat.d2, &flat.d3};
  int64_t* const shaped_dims[] = {&shaped.d1, &shaped.d2, &shaped.d3};
  for (int axis = 1; axis < kept; ++axis) {
    *flat_dims[axis - 1] = *shaped_dims[axis - 1] = to.dim(axis).constant;
  }
  *flat_dims[kept - 1] = broadcast;
  const std::string name = s.Part(part);
  shaped.x =
      s.b.Add(ops::Reduce{.x = s.b.Add(flat, name + ".flat"), .fn = RL_REDUCE_SUM}, name + ".sum");
  return s.b.Add(shaped, name);
}

// Gives `b` the sum of a gradient over the dimensions along which it was broadcast.
void GiveSum(Site& s, const ops::Binary& op, ValueId gradient) {
  const ValueId sum = SumTo(s, gradient, s.type(op.b), "b");
  if (sum != kNoValue) s.Give(operands::Binary::b, sum);
}

// min and max: the gradient belongs to the operand that was chosen, and to a if both are equal.
void Chosen(Site& s, const ops::Binary& op) {
  using In = operands::Binary;
  const bool min = op.fn == RL_BINARY_MIN;
  const ValueId test = s.b.Add(
      ops::Binary{.a = op.a, .b = op.b, .fn = min ? RL_BINARY_LE : RL_BINARY_LT}, s.Part("test"));
  const ValueId negated = Negated(s, test);
  if (s.Wants(In::a)) s.Give(In::a, Selected(s, min ? test : negated, s.Part("a")));
  if (s.Wants(In::b)) GiveSum(s, op, Selected(s, min ? negated : test, s.Part("b.all")));
}

}  // namespace

void Unary(Site& s, const ops::Unary& op) {
  using In = operands::Unary;
  const ValueId y = s.results[0];
  const std::string name = s.Part("x");
  switch (op.fn) {
    case RL_UNARY_NEG:
      return s.Give(In::x, Scaled(s, s.dy(), -1, 0, name));
    case RL_UNARY_LOG:
      return s.Give(In::x, s.b.Add(ops::Binary{.a = s.dy(), .b = op.x, .fn = RL_BINARY_DIV}, name));
    case RL_UNARY_SQRT: {  // dy / (2 y)
      const ValueId twice = Scaled(s, y, 2, 0, s.Part("twice"));
      return s.Give(In::x,
                    s.b.Add(ops::Binary{.a = s.dy(), .b = twice, .fn = RL_BINARY_DIV}, name));
    }
    case RL_UNARY_ABS: {  // sign(x) dy, 0 at 0
      const ValueId zeros = Zeros(s, op.x);
      const ValueId above =
          s.b.Add(ops::Binary{.a = zeros, .b = op.x, .fn = RL_BINARY_LT}, s.Part("above"));
      const ValueId below =
          s.b.Add(ops::Binary{.a = op.x, .b = zeros, .fn = RL_BINARY_LT}, s.Part("below"));
      return s.Give(In::x, s.b.Add(ops::Binary{.a = Selected(s, above, s.Part("up")),
                                               .b = Selected(s, below, s.Part("down")),
                                               .fn = RL_BINARY_SUB},
                                   name));
    }
    default: {
      const ValueId slope = UnarySlope(s, op.fn, op.x, y);
      if (slope != kNoValue) s.Give(In::x, s.b.Add(ops::Product(s.dy(), slope), name));
    }
  }
}

void Binary(Site& s, const ops::Binary& op) {
  using In = operands::Binary;
  const auto combine = [&](ValueId a, ValueId b, rl_binary fn, const char* part) {
    return s.b.Add(ops::Binary{.a = a, .b = b, .fn = fn}, s.Part(part));
  };
  switch (op.fn) {
    case RL_BINARY_ADD:
      if (s.Wants(In::a)) s.Give(In::a, s.dy());
      if (s.Wants(In::b)) GiveSum(s, op, s.dy());
      return;
    case RL_BINARY_SUB:
      if (s.Wants(In::a)) s.Give(In::a, s.dy());
      if (s.Wants(In::b)) GiveSum(s, op, Scaled(s, s.dy(), -1, 0, s.Part("b.all")));
      return;
    case RL_BINARY_MUL:
      if (s.Wants(In::a)) s.Give(In::a, combine(s.dy(), op.b, RL_BINARY_MUL, "a"));
      if (s.Wants(In::b)) GiveSum(s, op, combine(s.dy(), op.a, RL_BINARY_MUL, "b.all"));
      return;
    case RL_BINARY_DIV: {  // dy / b, and -dy / b y
      const ValueId quotient = combine(s.dy(), op.b, RL_BINARY_DIV, "a");
      if (s.Wants(In::a)) s.Give(In::a, quotient);
      if (!s.Wants(In::b)) return;
      const ValueId negative = Scaled(s, quotient, -1, 0, s.Part("negative"));
      return GiveSum(s, op, combine(negative, s.results[0], RL_BINARY_MUL, "b.all"));
    }
    case RL_BINARY_MIN:
    case RL_BINARY_MAX:
      return Chosen(s, op);
    default:  // comparisons are constant between the places where they jump
      s.GiveNone(In::a);
      s.GiveNone(In::b);
  }
}

void Scale(Site& s, const ops::Scale& op) {
  s.Give(operands::Scale::x, s.b.Add(ops::Scale{.x = s.dy(), .weight = op.weight}, s.Part("x")));
}

void Affine(Site& s, const ops::Affine& op) {
  s.Give(operands::Affine::x, Scaled(s, s.dy(), op.scale, 0, s.Part("x")));
}

void Select(Site& s, const ops::Select& op) {
  using In = operands::Select;
  s.GiveNone(In::condition);
  if (s.Wants(In::a)) s.Give(In::a, Selected(s, op.condition, s.Part("a")));
}

void Where(Site& s, const ops::Where& op) {
  using In = operands::Where;
  s.GiveNone(In::condition);
  if (s.Wants(In::a)) s.Give(In::a, Selected(s, op.condition, s.Part("a")));
  if (!s.Wants(In::b)) return;
  const ValueId is_zero =
      s.b.Add(ops::Binary{.a = op.condition, .b = Zeros(s, op.condition), .fn = RL_BINARY_EQ},
              s.Part("is_zero"));
  s.Give(In::b, Selected(s, is_zero, s.Part("b")));
}

// The gradient of a maximum goes to its first place, which argmax knows for rank 2 only.
void Reduce(Site& s, const ops::Reduce& op) {
  using In = operands::Reduce;
  const int64_t n = s.type(op.x).last().constant;
  if (op.fn == RL_REDUCE_MAX) {
    if (s.type(op.x).rank != 2) return;
    const ValueId index = s.b.Add(ops::ArgMax{op.x}, s.Part("index"));
    const ValueId flat = s.b.Add(ops::ReshapeTo(s.dy(), {}), s.Part("flat"));
    return s.Give(In::x, s.b.Add(ops::ScatterLast{.x = flat, .index = index, .n = n}, s.Part("x")));
  }
  const ValueId zeros = Zeros(s, op.x);
  const ValueId ones =
      s.b.Add(ops::Binary{.a = zeros, .b = zeros, .fn = RL_BINARY_EQ}, s.Part("ones"));
  const float factor = op.fn == RL_REDUCE_MEAN ? 1.0F / static_cast<float>(n) : 1.0F;
  s.Give(In::x,
         s.b.Add(ops::Product(ones, Scaled(s, s.dy(), factor, 0, s.Part("factor"))), s.Part("x")));
}

void Softmax(Site& s, const ops::Softmax&) {
  s.Give(operands::Softmax::x,
         s.b.Add(ops::SoftmaxGrad{.y = s.results[0], .dy = s.dy()}, s.Part("x")));
}

// dy (1 - (y / cap)^2)
void Softcap(Site& s, const ops::Softcap& op) {
  const ValueId square = Apply(s, s.results[0], RL_UNARY_SQUARE, s.Part("square"));
  const ValueId slope = Scaled(s, square, -1.0F / (op.cap * op.cap), 1, s.Part("slope"));
  s.Give(operands::Softcap::x, s.b.Add(ops::Product(s.dy(), slope), s.Part("x")));
}

}  // namespace rullama::derivatives
