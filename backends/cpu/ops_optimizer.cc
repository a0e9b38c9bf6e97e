// Gradients of parameters and the steps of AdamW, on states.
#include <algorithm>
#include <cmath>
#include <memory>

#include "backends/cpu/op_rows.h"

namespace rullama::cpu {
namespace {

// g += factor a^T b. An item is a tile of g, of which the rows of a and b are added up in their
// order, from zero; a few rows of b stay in L1 for all rows of the tile. The tile is then added to
// g.
class GradAccumulateNode final : public Node {
 public:
  explicit GradAccumulateNode(const CompileContext& context)
      : kernels_(context.kernels),
        g_(context.Result()),
        a_(context.Input(operands::GradAccumulate::a)),
        b_(context.Input(operands::GradAccumulate::b)),
        factor_(context.attrs<rl_grad_accumulate_attrs>().factor) {}

  [[nodiscard]] int64_t Items(const Step& step) const override {
    return TilesOf(g_.Dim(0, step), kTileRows) * TilesOf(g_.Dim(1, step), kTileColumns);
  }

  void Run(const Step& step, int /*worker*/, int64_t begin, int64_t end) override {
    const int64_t across = TilesOf(g_.Dim(1, step), kTileColumns);
    for (int64_t item = begin; item < end; ++item) {
      RunTile(step, item / across * kTileRows, item % across * kTileColumns);
    }
  }

 private:
  static constexpr int64_t kTileRows = 64;
  static constexpr int64_t kTileColumns = 256;
  static constexpr int64_t kDepth = 32;  // rows of a and b at a time

  static int64_t TilesOf(int64_t size, int64_t tile) { return (size + tile - 1) / tile; }

  void RunTile(const Step& step, int64_t first_row, int64_t first_column) const {
    const int64_t m = g_.Dim(0, step);
    const int64_t n = g_.Dim(1, step);
    const int64_t end_row = std::min(first_row + kTileRows, m);
    const auto columns = static_cast<size_t>(std::min(kTileColumns, n - first_column));
    const int64_t rows = a_.Rows(step);
    alignas(64) float sums[kTileRows * kTileColumns];
    std::fill_n(sums, (end_row - first_row) * kTileColumns, 0.0F);
    for (int64_t t = 0; t < rows; t += kDepth) {
      const int64_t depth = std::min(kDepth, rows - t);
      float factors[kDepth * kTileRows];
      for (int64_t d = 0; d < depth; ++d) {
        const float* a = a_.as<const float>() + (t + d) * m;
        float* scaled = factors + d * kTileRows;
        for (int64_t i = first_row; i < end_row; ++i) scaled[i - first_row] = factor_ * a[i];
      }
      kernels_.add_weighted_rows({.factors = factors,
                                  .output_stride = 1,
                                  .factor_stride = kTileRows,
                                  .rows = b_.as<const float>() + t * n + first_column,
                                  .row_stride = static_cast<size_t>(n),
                                  .count = static_cast<size_t>(depth),
                                  .columns = columns,
                                  .y = sums,
                                  .y_stride = kTileColumns,
                                  .outputs = static_cast<size_t>(end_row - first_row)});
    }
    for (int64_t i = first_row; i < end_row; ++i) {
      const float* sum = sums + (i - first_row) * kTileColumns;
      float* g = g_.as<float>() + i * n + first_column;
      for (size_t j = 0; j < columns; ++j) g[j] += sum[j];
    }
  }

  const KernelTable& kernels_;
  View g_, a_, b_;
  float factor_;
};

class AdamWNode final : public Node {
 public:
  explicit AdamWNode(const CompileContext& context)
      : p_(context.Input(operands::AdamW::p)),
        m_(context.Input(operands::AdamW::m)),
        v_(context.Input(operands::AdamW::v)),
        g_(context.Input(operands::AdamW::g)),
        lr_(context.Input(operands::AdamW::lr)),
        m_correction_(context.Input(operands::AdamW::m_correction)),
        v_correction_(context.Input(operands::AdamW::v_correction)),
        g_factor_(context.Input(operands::AdamW::g_factor)),
        attrs_(context.attrs<rl_adamw_attrs>()) {}

  [[nodiscard]] int64_t Items(const Step& step) const override {
    return (p_.Elements(step) + kElements - 1) / kElements;
  }

  void Run(const Step& step, int /*worker*/, int64_t begin, int64_t end) override {
    const int64_t first = begin * kElements;
    const int64_t last = std::min(end * kElements, p_.Elements(step));
    const float lr = *lr_.as<const float>();
    const float m_correction = *m_correction_.as<const float>();
    const float v_correction = *v_correction_.as<const float>();
    const float g_factor = *g_factor_.as<const float>();
    auto* p = p_.as<float>();
    auto* m = m_.as<float>();
    auto* v = v_.as<float>();
    auto* g = g_.as<float>();
    for (int64_t i = first; i < last; ++i) {
      const float gradient = g[i] * g_factor;
      m[i] += attrs_.m_rate * (gradient - m[i]);
      v[i] += attrs_.v_rate * (gradient * gradient - v[i]);
      const float change = m[i] * m_correction / (std::sqrt(v[i] * v_correction) + attrs_.eps);
      p[i] -= lr * (attrs_.weight_decay * p[i] + change);
      g[i] = 0;
    }
  }

 private:
  static constexpr int64_t kElements = 8192;  // of an item

  View p_, m_, v_, g_, lr_, m_correction_, v_correction_, g_factor_;
  rl_adamw_attrs attrs_;
};

}  // namespace

const OpRow rows::kGradAccumulate = {RL_OP_grad_accumulate, nullptr, AddNode<GradAccumulateNode>};
const OpRow rows::kAdamW = {RL_OP_adamw, nullptr, AddNode<AdamWNode>};

}  // namespace rullama::cpu
