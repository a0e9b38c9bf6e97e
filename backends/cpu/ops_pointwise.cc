// Pointwise ops. Elements are independent, so items are runs of elements instead of rows.
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "backends/cpu/kernels/training_kernels.h"
#include "backends/cpu/op_rows.h"

namespace rullama::cpu {
namespace {

// Elements per item, 32 KiB of floats: below this a phase costs more than a second worker saves.
constexpr int64_t kRun = 8192;

int64_t Runs(int64_t elements) { return (elements + kRun - 1) / kRun; }

// out = f(a, b) over tensors of the same shape; b may be absent.
using RunKernel = void (*)(const KernelTable&, const void* attrs, const float* a, const float* b,
                           size_t n, float* out);

template <typename Attrs>
class ElementwiseNode final : public Node {
 public:
  ElementwiseNode(const CompileContext& context, RunKernel kernel, const View& a, const View& b)
      : kernels_(context.kernels),
        attrs_(context.attrs<Attrs>()),
        kernel_(kernel),
        a_(a),
        b_(b),
        y_(context.Result()) {}
  [[nodiscard]] int64_t Items(const Step& step) const override { return Runs(y_.Elements(step)); }
  void Run(const Step& step, int /*worker*/, int64_t begin, int64_t end) override {
    const int64_t from = begin * kRun;
    const int64_t to = std::min(end * kRun, y_.Elements(step));
    kernel_(kernels_, &attrs_, a_.as<const float>() + from,
            b_.present() ? b_.as<const float>() + from : nullptr, static_cast<size_t>(to - from),
            y_.as<float>() + from);
  }

 private:
  const KernelTable& kernels_;
  Attrs attrs_;
  RunKernel kernel_;
  View a_, b_, y_;
};

// Appends a node for operands `a` and `b`; without `b`, the kernel receives null.
template <typename Attrs>
void AddElementwise(const CompileContext& context, RunKernel kernel, uint32_t a,
                    std::optional<uint32_t> b = {}) {
  context.nodes.Add(std::make_unique<ElementwiseNode<Attrs>>(context, kernel, context.Input(a),
                                                             b ? context.Input(*b) : View{}));
}

using UnaryFunction = float (*)(float);
using BinaryFunction = float (*)(float, float);

// The functions that no kernel has.
UnaryFunction FunctionOf(rl_unary fn) {
  switch (fn) {
    case RL_UNARY_NEG:
      return [](float x) { return -x; };
    case RL_UNARY_ABS:
      return [](float x) { return std::fabs(x); };
    case RL_UNARY_LOG:
      return [](float x) { return std::log(x); };
    case RL_UNARY_SQRT:
      return [](float x) { return std::sqrt(x); };
    case RL_UNARY_RSQRT:
      return [](float x) { return 1.0f / std::sqrt(x); };
    case RL_UNARY_TANH:
      return [](float x) { return std::tanh(x); };
    default:
      return [](float x) { return x * x; };  // RL_UNARY_SQUARE
  }
}

void UnaryRun(const KernelTable& kernels, const void* attrs, const float* x, const float* /*b*/,
              size_t n, float* out) {
  const int32_t fn = static_cast<const rl_unary_attrs*>(attrs)->fn;
  if (fn == RL_UNARY_GELU_TANH) {
    kernels.gelu_tanh(x, n, out);
  } else if (fn == RL_UNARY_GELU_TANH_GRAD) {
    TrainingKernelsFor(kernels.isa).gelu_tanh_grad(x, n, out);
  } else if (fn == RL_UNARY_EXP) {
    kernels.exp(x, n, out);
  } else if (fn == RL_UNARY_SIGMOID) {
    kernels.sigmoid(x, n, out);
  } else if (fn == RL_UNARY_SILU) {
    kernels.silu(x, n, out);
  } else {
    const UnaryFunction function = FunctionOf(static_cast<rl_unary>(fn));
    for (size_t i = 0; i < n; ++i) out[i] = function(x[i]);
  }
}

BinaryFunction FunctionOf(rl_binary fn) {
  switch (fn) {
    case RL_BINARY_ADD:
      return [](float a, float b) { return a + b; };
    case RL_BINARY_SUB:
      return [](float a, float b) { return a - b; };
    case RL_BINARY_MUL:
      return [](float a, float b) { return a * b; };
    case RL_BINARY_DIV:
      return [](float a, float b) { return a / b; };
    case RL_BINARY_MIN:
      return [](float a, float b) { return std::fmin(a, b); };
    case RL_BINARY_MAX:
      return [](float a, float b) { return std::fmax(a, b); };
    case RL_BINARY_LT:
      return [](float a, float b) { return a < b ? 1.0f : 0.0f; };
    case RL_BINARY_LE:
      return [](float a, float b) { return a <= b ? 1.0f : 0.0f; };
    default:
      return [](float a, float b) { return a == b ? 1.0f : 0.0f; };  // RL_BINARY_EQ
  }
}

void BinaryRun(const KernelTable& kernels, const void* attrs, const float* a, const float* b,
               size_t n, float* out) {
  const int32_t fn = static_cast<const rl_binary_attrs*>(attrs)->fn;
  if (fn == RL_BINARY_ADD) {
    kernels.add(a, b, n, out);
  } else if (fn == RL_BINARY_MUL) {
    kernels.mul(a, b, n, out);
  } else {
    const BinaryFunction function = FunctionOf(static_cast<rl_binary>(fn));
    for (size_t i = 0; i < n; ++i) out[i] = function(a[i], b[i]);
  }
}

// y = f(a, b) with b broadcast along inner dimensions of size 1. Items are rows.
class BroadcastBinaryNode final : public Node {
 public:
  explicit BroadcastBinaryNode(const CompileContext& context)
      : function_(FunctionOf(static_cast<rl_binary>(context.attrs<rl_binary_attrs>().fn))),
        a_(context.Input(operands::Binary::a)),
        b_(context.Input(operands::Binary::b)),
        y_(context.Result()) {}
  [[nodiscard]] int64_t Items(const Step& step) const override { return y_.Rows(step); }
  void Run(const Step& step, int /*worker*/, int64_t begin, int64_t end) override {
    // Strides of b over up to three inner dimensions; 0 where it is broadcast.
    int64_t size[3] = {1, 1, 1};
    int64_t stride[3] = {0, 0, 0};
    int64_t b_row = 1;
    for (int axis = a_.rank - 1; axis >= 1; --axis) {
      const int at = axis - a_.rank + 3;
      size[at] = a_.Dim(axis, step);
      stride[at] = b_.Dim(axis, step) == 1 ? 0 : b_row;
      b_row *= b_.Dim(axis, step);
    }
    const int64_t a_row = a_.RowElements(step);
    for (int64_t row = begin; row < end; ++row) {
      const float* a = a_.as<const float>() + row * a_row;
      const float* b = b_.as<const float>() + row * b_row;
      float* y = y_.as<float>() + row * a_row;
      for (int64_t i = 0; i < size[0]; ++i) {
        for (int64_t j = 0; j < size[1]; ++j) {
          const float* run = b + i * stride[0] + j * stride[1];
          for (int64_t k = 0; k < size[2]; ++k, ++a, ++y) {
            *y = function_(*a, run[k * stride[2]]);
          }
        }
      }
    }
  }

 private:
  BinaryFunction function_;
  View a_, b_, y_;
};

// y = x * weight along the last dimension, weight [n] or [1]. Items are rows.
class ScaleNode final : public Node {
 public:
  explicit ScaleNode(const CompileContext& context)
      : kernels_(context.kernels),
        x_(context.Input(operands::Scale::x)),
        weight_(context.Input(operands::Scale::weight)),
        y_(context.Result()) {}
  [[nodiscard]] int64_t Items(const Step& step) const override { return y_.Rows(step); }
  void Run(const Step& step, int /*worker*/, int64_t begin, int64_t end) override {
    const auto n = static_cast<size_t>(x_.Last(step));
    const size_t per_row = static_cast<size_t>(x_.RowElements(step)) / n;
    const float* weight = weight_.as<const float>();
    for (size_t i = static_cast<size_t>(begin) * per_row; i < static_cast<size_t>(end) * per_row;
         ++i) {
      const float* x = x_.as<const float>() + i * n;
      float* y = y_.as<float>() + i * n;
      if (weight_.Dim(0, step) == 1) {
        kernels_.affine(x, n, *weight, 0.0f, y);
      } else {
        kernels_.mul(x, weight, n, y);
      }
    }
  }

 private:
  const KernelTable& kernels_;
  View x_, weight_, y_;
};

// y = x + vector along the last dimension. Items are rows.
class AddVectorNode final : public Node {
 public:
  explicit AddVectorNode(const CompileContext& context)
      : kernels_(context.kernels),
        x_(context.Input(operands::AddVector::x)),
        vector_(context.Input(operands::AddVector::vector)),
        y_(context.Result()) {}
  [[nodiscard]] int64_t Items(const Step& step) const override { return y_.Rows(step); }
  void Run(const Step& step, int /*worker*/, int64_t begin, int64_t end) override {
    const int64_t n = x_.Last(step);
    const int64_t row = x_.RowElements(step);
    for (int64_t at = begin * row; at < end * row; at += n) {
      kernels_.add(x_.as<const float>() + at, vector_.as<const float>(), static_cast<size_t>(n),
                   y_.as<float>() + at);
    }
  }

 private:
  const KernelTable& kernels_;
  View x_, vector_, y_;
};

bool SameShape(const View& a, const View& b) {
  for (int axis = 0; axis < a.rank; ++axis) {
    const rl_dim& da = a.dims[axis];
    const rl_dim& db = b.dims[axis];
    if (da.constant != db.constant || da.t != db.t || da.r != db.r) return false;
  }
  return a.rank == b.rank;
}

void CompileUnary(const CompileContext& context) {
  AddElementwise<rl_unary_attrs>(context, UnaryRun, operands::Unary::x);
}

void CompileBinary(const CompileContext& context) {
  using operands::Binary;
  if (SameShape(context.Input(Binary::a), context.Input(Binary::b))) {
    AddElementwise<rl_binary_attrs>(context, BinaryRun, Binary::a, Binary::b);
  } else {
    AddNode<BroadcastBinaryNode>(context);
  }
}

void CompileAffine(const CompileContext& context) {
  const RunKernel kernel = [](const KernelTable& kernels, const void* attrs, const float* x,
                              const float*, size_t n, float* out) {
    const auto& a = *static_cast<const rl_affine_attrs*>(attrs);
    kernels.affine(x, n, a.scale, a.bias, out);
  };
  AddElementwise<rl_affine_attrs>(context, kernel, operands::Affine::x);
}

void CompileClamp(const CompileContext& context) {
  const RunKernel kernel = [](const KernelTable& kernels, const void* attrs, const float* x,
                              const float*, size_t n, float* out) {
    const auto& a = *static_cast<const rl_clamp_attrs*>(attrs);
    kernels.clamp(x, n, a.lo, a.hi, out);
  };
  AddElementwise<rl_clamp_attrs>(context, kernel, operands::Clamp::x);
}

void CompileSoftcap(const CompileContext& context) {
  const RunKernel kernel = [](const KernelTable& kernels, const void* attrs, const float* x,
                              const float*, size_t n, float* out) {
    kernels.softcap(x, n, static_cast<const rl_softcap_attrs*>(attrs)->cap, out);
  };
  AddElementwise<rl_softcap_attrs>(context, kernel, operands::Softcap::x);
}

void CompileGeGlu(const CompileContext& context) {
  const RunKernel kernel = [](const KernelTable& kernels, const void*, const float* gate,
                              const float* up, size_t n,
                              float* out) { kernels.geglu(gate, up, n, out); };
  AddElementwise<rl_geglu_attrs>(context, kernel, operands::GeGlu::gate, operands::GeGlu::up);
}

void CompileSelect(const CompileContext& context) {
  const RunKernel kernel = [](const KernelTable&, const void* attrs, const float* condition,
                              const float* a, size_t n, float* out) {
    const float otherwise = static_cast<const rl_select_attrs*>(attrs)->otherwise;
    for (size_t i = 0; i < n; ++i) out[i] = condition[i] != 0 ? a[i] : otherwise;
  };
  AddElementwise<rl_select_attrs>(context, kernel, operands::Select::condition,
                                  operands::Select::a);
}

}  // namespace

const OpRow rows::kUnary = {RL_OP_unary, nullptr, CompileUnary};
const OpRow rows::kBinary = {RL_OP_binary, nullptr, CompileBinary};
const OpRow rows::kScale = {RL_OP_scale, nullptr, AddNode<ScaleNode>};
const OpRow rows::kAffine = {RL_OP_affine, nullptr, CompileAffine};
const OpRow rows::kClamp = {RL_OP_clamp, nullptr, CompileClamp};
const OpRow rows::kAddVector = {RL_OP_add_vector, nullptr, AddNode<AddVectorNode>};
const OpRow rows::kSoftcap = {RL_OP_softcap, nullptr, CompileSoftcap};
const OpRow rows::kGeGlu = {RL_OP_geglu, nullptr, CompileGeGlu};
const OpRow rows::kSelect = {RL_OP_select, nullptr, CompileSelect};

}  // namespace rullama::cpu
