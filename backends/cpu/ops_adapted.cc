// Products with low-rank adapters: y = x W^T + (x A^T) B^T. The narrow product with A runs first,
// of all adapters of an op in one node; a worker adds that with B to a block of rows of W right
// after it has computed them, while they are in cache. A and B keep all their bits; the plugin has
// copies of them that are read in one stream (weight.h).
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backends/cpu/op_rows.h"
#include "backends/cpu/product.h"

namespace rullama::cpu {
namespace {

// Asks for `count` floats that are read soon, all at once. They are too few for the prefetching of
// the processor, which begins anew with each page, and each step reads them from memory.
void FetchSoon(const float* first, size_t count) {
  constexpr size_t kLine = 64 / sizeof(float);
  for (size_t i = 0; i < count; i += kLine) __builtin_prefetch(first + i, 0, 2);
}

// An adapter of an op, and x A^T [rows of x][rank].
struct LowRank {
  const float* a;         // [rank][columns of the weight]
  const float* b_panels;  // CpuWeight::TransposedPanels()
  size_t rank;
  float* inner;
};

MatrixShape ShapeOf(const View& constant) {
  return {.rows = static_cast<size_t>(constant.dims[0].constant),
          .columns = static_cast<size_t>(constant.dims[1].constant)};
}

LowRank LowRankOf(const CompileContext& context, const View& x, uint32_t a, uint32_t b) {
  const MatrixShape a_shape = ShapeOf(context.Input(a)), b_shape = ShapeOf(context.Input(b));
  const size_t rank = a_shape.rows;
  return {.a = context.Weight(a).StreamedRows(a_shape, context.arena),
          .b_panels = context.Weight(b).TransposedPanels(b_shape, context.arena),
          .rank = rank,
          .inner = reinterpret_cast<float*>(
              context.workspace.AllocateForOp(MaxBatch(context, x) * rank * sizeof(float)))};
}

// x A^T of each adapter. An item is a block of rows of x and an A, in steps of few rows only some
// rows of it, so that these are work for several workers too.
class InnerNode final : public Node {
 public:
  InnerNode(const CompileContext& context, const View& x, std::span<const LowRank> adapters)
      : kernels_(context.kernels), x_(x) {
    for (const LowRank& adapter : adapters) {
      const auto part = [&](size_t begin, size_t end) {
        return Part{adapter.a, adapter.inner, adapter.rank, begin, end};
      };
      whole_.push_back(part(0, adapter.rank));
      for (size_t begin = 0; begin < adapter.rank; begin += kSplitRows) {
        split_.push_back(part(begin, std::min(begin + kSplitRows, adapter.rank)));
      }
    }
  }
  [[nodiscard]] int64_t Items(const Step& step) const override {
    return (x_.Rows(step) + kBlock - 1) / kBlock * static_cast<int64_t>(PartsOf(step).size());
  }
  void Run(const Step& step, int /*worker*/, int64_t begin, int64_t end) override {
    const std::span<const Part> parts = PartsOf(step);
    const auto count = static_cast<int64_t>(parts.size());
    for (int64_t item = begin; item < end; ++item) {
      const int64_t first = item / count * kBlock;
      Multiply(parts[static_cast<size_t>(item % count)], static_cast<size_t>(first),
               static_cast<size_t>(std::min(x_.Rows(step) - first, kBlock)));
    }
  }

 private:
  static constexpr int64_t kBlock = 32;    // rows of x, which L2 keeps for all parts
  static constexpr size_t kSplitRows = 4;  // of A: those of a register tile (float_matmul.h)

  // Rows [begin, end) of an A.
  struct Part {
    const float* a;
    float* inner;
    size_t rank, begin, end;
  };

  [[nodiscard]] std::span<const Part> PartsOf(const Step& step) const {
    return x_.Rows(step) < kBlock ? split_ : whole_;
  }

  void Multiply(const Part& part, size_t first, size_t count) const {
    const auto k = static_cast<size_t>(x_.dims[1].constant);
    if (first == 0) FetchSoon(part.a + part.begin * k, (part.end - part.begin) * k);
    MatMul(kernels_, DType::kF32,
           {.weights = part.a,
            .row_bytes = k * sizeof(float),
            .k = k,
            .n_begin = part.begin,
            .n_end = part.end,
            .x = x_.as<const float>() + first * k,
            .x_stride = k * sizeof(float),
            .batch = count,
            .format = ActivationFormat::kFloat32,
            .y = part.inner + first * part.rank,
            .y_stride = part.rank});
  }

  const KernelTable& kernels_;
  View x_;
  std::vector<Part> whole_, split_;
};

// A product and its adapter, with the functions of Product.
class AdaptedProduct {
 public:
  AdaptedProduct(const KernelTable& kernels, const Product& base, const LowRank& adapter,
                 const View& y)
      : kernels_(kernels), base_(base), adapter_(adapter), y_(y.as<float>()) {}

  [[nodiscard]] size_t rows() const { return base_.rows(); }
  [[nodiscard]] size_t BlockRows(size_t batch) const { return base_.BlockRows(batch); }
  [[nodiscard]] size_t ScratchBytes(size_t max_batch) const {
    return base_.ScratchBytes(max_batch);
  }

  void Run(size_t batch, size_t n_begin, size_t n_end, std::byte* scratch) const {
    const size_t block = BlockRows(batch);
    for (size_t begin = n_begin; begin < n_end; begin += block) {
      const size_t end = std::min(begin + block, n_end);
      FetchRows(begin, end);
      base_.Run(batch, begin, end, scratch);
      Add(batch, begin, end, y_ + begin, rows());
    }
  }

  // At most BlockRows() rows, as with Product.
  void RunBlock(size_t batch, size_t n_begin, size_t n_end, float* y, std::byte* scratch) const {
    FetchRows(n_begin, n_end);
    base_.RunBlock(batch, n_begin, n_end, y, scratch);
    Add(batch, n_begin, n_end, y, BlockRows(batch));
  }

 private:
  // Rows of B, which come while the product with the weight is computed.
  void FetchRows(size_t begin, size_t end) const {
    FetchSoon(adapter_.b_panels + begin * adapter_.rank, (end - begin) * adapter_.rank);
  }

  // y[m][n - n_begin] += the product of row m of x A^T with row n of B.
  void Add(size_t batch, size_t n_begin, size_t n_end, float* y, size_t y_stride) const {
    for (size_t n = n_begin; n < n_end;) {
      const size_t in_panel = n % kTransposedRows, panel = n - in_panel;
      const size_t panel_rows = std::min(kTransposedRows, rows() - panel);
      const size_t count = std::min(panel + panel_rows, n_end) - n;
      kernels_.add_weighted_rows({.factors = adapter_.inner,
                                  .output_stride = adapter_.rank,
                                  .rows = adapter_.b_panels + panel * adapter_.rank + in_panel,
                                  .row_stride = panel_rows,
                                  .count = adapter_.rank,
                                  .columns = count,
                                  .y = y + (n - n_begin),
                                  .y_stride = y_stride,
                                  .outputs = batch});
      n += count;
    }
  }

  const KernelTable& kernels_;
  Product base_;
  LowRank adapter_;
  float* y_;
};

AdaptedProduct AdaptedProductOf(const CompileContext& context, const View& x, const View& weight,
                                const LowRank& adapter, const View& y) {
  const ProductRows rows = context.nodes.Activations(context, x, weight.dtype);
  return {context.kernels, Product(context, rows, weight, y), adapter, y};
}

void CompileAdaptedLinear(const CompileContext& context) {
  using In = operands::AdaptedLinear;
  const View x = context.Input(In::x), y = context.Result();
  const std::array adapters = {LowRankOf(context, x, In::a, In::b)};
  context.nodes.Add(std::make_unique<InnerNode>(context, x, adapters));
  context.nodes.Add(std::make_unique<ProductNode<AdaptedProduct>>(
      context, x, AdaptedProductOf(context, x, context.Input(In::weight), adapters[0], y)));
}

void CompileAdaptedGeGluLinear(const CompileContext& context) {
  using In = operands::AdaptedGeGluLinear;
  const View x = context.Input(In::x), y = context.Result();
  const std::array adapters = {LowRankOf(context, x, In::gate_a, In::gate_b),
                               LowRankOf(context, x, In::up_a, In::up_b)};
  context.nodes.Add(std::make_unique<InnerNode>(context, x, adapters));
  const AdaptedProduct gate =
      AdaptedProductOf(context, x, context.Input(In::gate_weight), adapters[0], y);
  const AdaptedProduct up =
      AdaptedProductOf(context, x, context.Input(In::up_weight), adapters[1], y);
  context.nodes.Add(std::make_unique<GatedNode<AdaptedProduct>>(context, x, y, gate, up));
}

}  // namespace

const OpRow rows::kAdaptedLinear = {RL_OP_adapted_linear, RefuseWeights, CompileAdaptedLinear};
const OpRow rows::kAdaptedGeGluLinear = {RL_OP_adapted_geglu_linear, RefuseWeights,
                                         CompileAdaptedGeGluLinear};

}  // namespace rullama::cpu
