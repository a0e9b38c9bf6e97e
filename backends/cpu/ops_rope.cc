// Rotary position embedding (NeoX pairs).
#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "backends/cpu/op_rows.h"

namespace rullama::cpu {
namespace {

class RopeNode final : public Node {
 public:
  explicit RopeNode(const CompileContext& context)
      : kernels_(context.kernels),
        x_(context.Input(operands::Rope::x)),
        pos_(context.Input(operands::Rope::pos)),
        y_(context.Result()),
        half_(static_cast<size_t>(context.attrs<rl_rope_attrs>().n_rot) / 2) {
    // theta^(-2i / n_rot) / factor, in float64: angles reach 1e5 radians, so the rate needs more
    // than float32's 24 bits. The inverse turns the other way.
    const auto a = context.attrs<rl_rope_attrs>();
    const double direction = a.inverse != 0 ? -1 : 1;
    const View factors = context.Input(operands::Rope::freq_factors);
    for (size_t i = 0; i < half_; ++i) {
      const double exponent = -2.0 * static_cast<double>(i) / a.n_rot;
      const double factor = factors.present() ? factors.as<const float>()[i] : 1.0;
      rate_.push_back(direction * std::pow(static_cast<double>(a.theta), exponent) / factor);
    }
    for (int worker = 0; worker < context.workers; ++worker) {
      table_.push_back(
          reinterpret_cast<float*>(context.workspace.Allocate(2 * half_ * sizeof(float))));
    }
  }
  [[nodiscard]] int64_t Items(const Step& step) const override { return x_.Rows(step); }
  void Run(const Step& step, int worker, int64_t begin, int64_t end) override {
    float* cosine = table_[worker];
    float* sine = cosine + half_;
    const int64_t heads = x_.Dim(1, step);
    const int64_t dim = x_.Dim(2, step);
    for (int64_t row = begin; row < end; ++row) {
      const double position = pos_.as<const int32_t>()[row];
      for (size_t i = 0; i < half_; ++i) {
        const double angle = position * rate_[i];
        cosine[i] = static_cast<float>(std::cos(angle));
        sine[i] = static_cast<float>(std::sin(angle));
      }
      for (int64_t head = 0; head < heads; ++head) {
        const int64_t at = (row * heads + head) * dim;
        const float* x = x_.as<const float>() + at;
        float* y = y_.as<float>() + at;
        kernels_.rope_neox(x, cosine, sine, half_, y);
        std::copy(x + 2 * half_, x + dim, y + 2 * half_);
      }
    }
  }

 private:
  const KernelTable& kernels_;
  View x_, pos_, y_;
  size_t half_;
  std::vector<double> rate_;   // [half_]: radians per position
  std::vector<float*> table_;  // per worker: half_ cosines, then half_ sines
};

}  // namespace

const OpRow rows::kRope = {RL_OP_rope, nullptr, AddNode<RopeNode>};

}  // namespace rullama::cpu
