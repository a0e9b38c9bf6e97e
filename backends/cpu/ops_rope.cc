// Rotary position embedding (NeoX pairs), and the Walsh-Hadamard transform of heads.
#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "backends/cpu/op_rows.h"

namespace rullama::cpu {
namespace {

// Radians per position of each pair: theta^(-2i / n_rot) / factor, in float64: angles reach 1e5
// radians, so the rate needs more than float32's 24 bits. The inverse turns the other way.
std::vector<double> RopeRates(const CompileContext& context) {
  const auto a = context.attrs<rl_rope_attrs>();
  const double direction = a.inverse != 0 ? -1 : 1;
  const View factors = context.Input(operands::Rope::freq_factors);
  std::vector<double> rates;
  for (int32_t i = 0; i < a.n_rot / 2; ++i) {
    const double exponent = -2.0 * i / a.n_rot;
    const double factor = factors.present() ? factors.as<const float>()[i] : 1.0;
    rates.push_back(direction * std::pow(static_cast<double>(a.theta), exponent) / factor);
  }
  return rates;
}

// Fills a table with the cosines of each row's angles, then their sines. Layers turn by the same
// angles, and these functions take longer than the turning.
class RopeTableNode final : public Node {
 public:
  RopeTableNode(const View& pos, std::vector<double> rates, float* table)
      : pos_(pos), rates_(std::move(rates)), table_(table) {}
  [[nodiscard]] int64_t Items(const Step& step) const override { return pos_.Rows(step); }
  void Run(const Step& /*step*/, int /*worker*/, int64_t begin, int64_t end) override {
    const size_t half = rates_.size();
    for (int64_t row = begin; row < end; ++row) {
      const double position = pos_.as<const int32_t>()[row];
      float* cosine = table_ + static_cast<size_t>(row) * 2 * half;
      for (size_t i = 0; i < half; ++i) {
        const double angle = position * rates_[i];
        cosine[i] = static_cast<float>(std::cos(angle));
        cosine[half + i] = static_cast<float>(std::sin(angle));
      }
    }
  }

 private:
  View pos_;
  std::vector<double> rates_;
  float* table_;
};

class RopeNode final : public Node {
 public:
  explicit RopeNode(const CompileContext& context)
      : kernels_(context.kernels),
        x_(context.Input(operands::Rope::x)),
        y_(context.Result()),
        first_(context.attrs<rl_rope_attrs>().first),
        half_(static_cast<size_t>(context.attrs<rl_rope_attrs>().n_rot) / 2) {
    const View pos = context.Input(operands::Rope::pos);
    std::vector<double> rates = RopeRates(context);
    const auto rows = static_cast<uint64_t>(pos.Rows(context.MaxStep()));
    const auto [data, is_new] =
        context.nodes.TableOf(context, pos, rates, rows * 2 * half_ * sizeof(float));
    auto* table = reinterpret_cast<float*>(data);
    if (is_new) context.nodes.Add(std::make_unique<RopeTableNode>(pos, std::move(rates), table));
    table_ = table;
  }
  [[nodiscard]] int64_t Items(const Step& step) const override { return x_.Rows(step); }
  void Run(const Step& step, int /*worker*/, int64_t begin, int64_t end) override {
    const int64_t heads = x_.Dim(1, step);
    const int64_t dim = x_.Dim(2, step);
    for (int64_t row = begin; row < end; ++row) {
      const float* cosine = table_ + static_cast<size_t>(row) * 2 * half_;
      for (int64_t head = 0; head < heads; ++head) {
        const int64_t at = (row * heads + head) * dim;
        const float* x = x_.as<const float>() + at;
        float* y = y_.as<float>() + at;
        const int64_t end_of_pairs = first_ + static_cast<int64_t>(2 * half_);
        std::copy(x, x + first_, y);
        kernels_.rope_neox(x + first_, cosine, cosine + half_, half_, y + first_);
        std::copy(x + end_of_pairs, x + dim, y + end_of_pairs);
      }
    }
  }

 private:
  const KernelTable& kernels_;
  View x_, y_;
  int64_t first_;  // rotated dimension
  size_t half_;
  const float* table_;  // [rows, 2, half_]
};

// An item is a row along the last dimension.
class RotateNode final : public Node {
 public:
  explicit RotateNode(const CompileContext& context)
      : kernels_(context.kernels),
        x_(context.Input(operands::Rotate::x)),
        y_(context.Result()),
        n_(static_cast<size_t>(x_.Last(context.MaxStep()))),
        scale_(static_cast<float>(1 / std::sqrt(static_cast<double>(n_)))) {}
  [[nodiscard]] int64_t Items(const Step& step) const override {
    return x_.Elements(step) / static_cast<int64_t>(n_);
  }
  void Run(const Step& /*step*/, int /*worker*/, int64_t begin, int64_t end) override {
    for (auto at = static_cast<size_t>(begin) * n_; at < static_cast<size_t>(end) * n_; at += n_) {
      kernels_.rotate(x_.as<const float>() + at, n_, scale_, y_.as<float>() + at);
    }
  }

 private:
  const KernelTable& kernels_;
  View x_, y_;
  size_t n_;
  float scale_;
};

}  // namespace

const OpRow rows::kRope = {RL_OP_rope, nullptr, AddNode<RopeNode>};
const OpRow rows::kRotate = {RL_OP_rotate, nullptr, AddNode<RotateNode>};

}  // namespace rullama::cpu
