// Products with low-rank adapters: y = x W^T + (x A^T) B^T. The narrow product with A runs first,
// of all adapters of an op in one node; a worker adds that with B to a block of rows of W right
// after it has computed them, while they are in cache. A and B keep all their bits; the plugin has
// copies of them that are read in one stream (weight.h). Rows may choose among adapters that are
// stacked: rows with the same one that follow each other are multiplied together.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
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

// Which adapters the rows of a step have. Without a choice all rows have the only one there is,
// with the factor 1.
class Choice {
 public:
  Choice() = default;
  Choice(const View& ids, const View& factors, size_t adapters)
      : ids_(ids.as<const int32_t>()),
        factors_(factors.as<const float>()),
        places_(static_cast<size_t>(ids.dims[1].constant)),
        adapters_(adapters) {}

  [[nodiscard]] size_t places() const { return places_; }
  [[nodiscard]] bool HasFactors() const { return factors_ != nullptr; }
  [[nodiscard]] float FactorOf(size_t row, size_t place) const {
    return factors_[row * places_ + place];
  }
  // The first place of rows [0, rows) whose id is not that of an adapter, or rows * places().
  [[nodiscard]] size_t FirstFault(size_t rows) const {
    if (ids_ == nullptr) return rows * places_;
    const int32_t* const end = ids_ + rows * places_;
    return static_cast<size_t>(std::find_if(ids_, end, [this](int32_t id) { return !Has(id); }) -
                               ids_);
  }
  [[nodiscard]] int32_t IdAt(size_t index) const { return ids_[index]; }
  [[nodiscard]] size_t adapters() const { return adapters_; }

  // Calls run(adapter, first, count) for rows of [begin, end) that have the same adapter in a place
  // and follow each other.
  template <typename Run>
  void ForEachRun(size_t place, size_t begin, size_t end, const Run& run) const {
    if (ids_ == nullptr) {
      run(size_t{0}, begin, end - begin);
      return;
    }
    for (size_t row = begin; row < end;) {
      const int32_t id = ids_[row * places_ + place];
      size_t next = row + 1;
      if (FactorOf(row, place) == 0 || !Has(id)) {
        row = next;
        continue;
      }
      while (next < end && ids_[next * places_ + place] == id && FactorOf(next, place) != 0) ++next;
      run(static_cast<size_t>(id), row, next - row);
      row = next;
    }
  }

 private:
  [[nodiscard]] bool Has(int32_t id) const {
    return id >= 0 && static_cast<size_t>(id) < adapters_;
  }

  const int32_t* ids_ = nullptr;    // [rows][places]
  const float* factors_ = nullptr;  // [rows][places]
  size_t places_ = 1, adapters_ = 1;
};

// An adapter of an op, or several that are stacked, and x A^T [rows of x][places][rank], times the
// factor of the place.
struct LowRank {
  const float* a;         // [adapters][rank][columns of the weight]
  const float* b_panels;  // CpuWeight::TransposedPanels()
  size_t rank, rows;      // rows of the weight
  Choice choice;
  float* inner;

  [[nodiscard]] size_t InnerStride() const { return choice.places() * rank; }
  [[nodiscard]] float* InnerOf(size_t row, size_t place) const {
    return inner + row * InnerStride() + place * rank;
  }
};

// The last two dimensions of a constant.
MatrixShape ShapeOf(const View& constant) {
  return {.rows = static_cast<size_t>(constant.dims[constant.rank - 2].constant),
          .columns = static_cast<size_t>(constant.dims[constant.rank - 1].constant)};
}

size_t StackedIn(const View& constant) {
  return constant.rank == 2 ? 1 : static_cast<size_t>(constant.dims[0].constant);
}

// The operands of an op that are one adapter or a stack of them.
struct Matrices {
  uint32_t a, b;
};

LowRank LowRankOf(const CompileContext& context, const View& x, Matrices matrices,
                  const Choice& choice = {}) {
  const View a = context.Input(matrices.a), b = context.Input(matrices.b);
  const MatrixShape a_shape = ShapeOf(a), b_shape = ShapeOf(b);
  const MatrixShape all_of_a = {a_shape.rows * StackedIn(a), a_shape.columns};
  LowRank adapter{
      .a = context.Weight(matrices.a).StreamedRows(all_of_a, context.arena),
      .b_panels = context.Weight(matrices.b).TransposedPanels(b_shape, context.arena, StackedIn(b)),
      .rank = a_shape.rows,
      .rows = b_shape.rows,
      .choice = choice,
      .inner = nullptr};
  adapter.inner = reinterpret_cast<float*>(context.workspace.AllocateForOp(
      MaxBatch(context, x) * adapter.InnerStride() * sizeof(float)));
  return adapter;
}

// x A^T of each adapter. An item is a block of rows of x and an A, in steps of few rows only some
// rows of it, so that these are work for several workers too.
class InnerNode final : public Node {
 public:
  InnerNode(const CompileContext& context, const View& x, std::span<const LowRank> adapters)
      : kernels_(context.kernels), x_(x) {
    for (const LowRank& adapter : adapters) {
      whole_.push_back({adapter, 0, adapter.rank});
      for (size_t begin = 0; begin < adapter.rank; begin += kSplitRows) {
        split_.push_back({adapter, begin, std::min(begin + kSplitRows, adapter.rank)});
      }
    }
  }
  [[nodiscard]] int64_t Items(const Step& step) const override {
    return (x_.Rows(step) + kBlock - 1) / kBlock * static_cast<int64_t>(PartsOf(step).size());
  }
  void Run(const Step& step, int /*worker*/, int64_t begin, int64_t end) override {
    const std::span<const Part> parts = PartsOf(step);
    const auto count = static_cast<int64_t>(parts.size());
    if (begin == 0) CheckChoice(parts.front().adapter.choice, x_.Count(0, step));
    for (int64_t item = begin; item < end; ++item) {
      const int64_t first = item / count * kBlock;
      const int64_t last = std::min(first + kBlock, x_.Rows(step));
      Multiply(parts[static_cast<size_t>(item % count)], static_cast<size_t>(first),
               static_cast<size_t>(last));
    }
  }

 private:
  static constexpr int64_t kBlock = 32;    // rows of x, which L2 keeps for all parts
  static constexpr size_t kSplitRows = 4;  // of A: those of a register tile (float_matmul.h)

  // Rows [begin, end) of an A.
  struct Part {
    LowRank adapter;
    size_t begin, end;
  };

  [[nodiscard]] std::span<const Part> PartsOf(const Step& step) const {
    return x_.Rows(step) < kBlock ? split_ : whole_;
  }

  // All adapters of an op have one choice.
  void CheckChoice(const Choice& choice, size_t rows) {
    const size_t fault = choice.FirstFault(rows);
    if (fault == rows * choice.places()) return;
    Fail("row " + std::to_string(fault / choice.places()) + " asks for adapter " +
         std::to_string(choice.IdAt(fault)) + " of " + std::to_string(choice.adapters()));
  }

  // Rows [begin, end) of x.
  void Multiply(const Part& part, size_t begin, size_t end) const {
    const Choice& choice = part.adapter.choice;
    for (size_t place = 0; place < choice.places(); ++place) {
      choice.ForEachRun(place, begin, end, [&](size_t id, size_t first, size_t count) {
        MultiplyRun(part, {id, place}, first, count);
      });
    }
  }

  struct Chosen {
    size_t adapter, place;
  };
  void MultiplyRun(const Part& part, Chosen chosen, size_t first, size_t count) const {
    const LowRank& adapter = part.adapter;
    const auto k = static_cast<size_t>(x_.dims[1].constant);
    const float* const a = adapter.a + chosen.adapter * adapter.rank * k;
    if (first == 0 || adapter.choice.HasFactors()) {
      FetchSoon(a + part.begin * k, (part.end - part.begin) * k);
    }
    MatMul(kernels_, DType::kF32,
           {.weights = a,
            .row_bytes = k * sizeof(float),
            .k = k,
            .n_begin = part.begin,
            .n_end = part.end,
            .x = x_.as<const float>() + first * k,
            .x_stride = k * sizeof(float),
            .batch = count,
            .format = ActivationFormat::kFloat32,
            .y = adapter.InnerOf(first, chosen.place),
            .y_stride = adapter.InnerStride()});
    if (!adapter.choice.HasFactors()) return;
    for (size_t row = first; row < first + count; ++row) {
      float* const inner = adapter.InnerOf(row, chosen.place);
      const float factor = adapter.choice.FactorOf(row, chosen.place);
      for (size_t i = part.begin; i < part.end; ++i) inner[i] *= factor;
    }
  }

  const KernelTable& kernels_;
  View x_;
  std::vector<Part> whole_, split_;
};

// The products of the chosen adapters' B with x A^T, which `inner` has, for rows of the weight.
class AdapterRows {
 public:
  AdapterRows(const KernelTable& kernels, const LowRank& adapter)
      : kernels_(kernels), adapter_(adapter) {}

  // Asks for rows of B, which come while the product with the weight is computed.
  void FetchRows(size_t batch, size_t begin, size_t end) const {
    const size_t rank = adapter_.rank;
    const auto fetch = [&](size_t id, size_t /*first*/, size_t /*count*/) {
      FetchSoon(PanelsOf(id) + begin * rank, (end - begin) * rank);
    };
    for (size_t place = 0; place < adapter_.choice.places(); ++place) {
      adapter_.choice.ForEachRun(place, 0, batch, fetch);
    }
  }

  // y[m][n - n_begin] += the products of row m of x A^T with row n of B, in each place.
  void Add(size_t batch, size_t n_begin, size_t n_end, float* y, size_t y_stride) const {
    for (size_t place = 0; place < adapter_.choice.places(); ++place) {
      adapter_.choice.ForEachRun(place, 0, batch, [&](size_t id, size_t first, size_t count) {
        AddRun({.factors = adapter_.InnerOf(first, place),
                .output_stride = adapter_.InnerStride(),
                .count = adapter_.rank,
                .y = y + first * y_stride,
                .y_stride = y_stride,
                .outputs = count},
               PanelsOf(id), n_begin, n_end);
      });
    }
  }

 private:
  [[nodiscard]] const float* PanelsOf(size_t id) const {
    return adapter_.b_panels + id * adapter_.rows * adapter_.rank;
  }

  void AddRun(WeightedRowsArgs args, const float* panels, size_t n_begin, size_t n_end) const {
    float* const y = args.y;
    for (size_t n = n_begin; n < n_end;) {
      const size_t in_panel = n % kTransposedRows, panel = n - in_panel;
      const size_t panel_rows = std::min(kTransposedRows, adapter_.rows - panel);
      args.rows = panels + panel * adapter_.rank + in_panel;
      args.row_stride = panel_rows;
      args.columns = std::min(panel + panel_rows, n_end) - n;
      args.y = y + (n - n_begin);
      kernels_.add_weighted_rows(args);
      n += args.columns;
    }
  }

  const KernelTable& kernels_;
  LowRank adapter_;
};

// A product and its adapters, with the functions of Product.
class AdaptedProduct {
 public:
  AdaptedProduct(const KernelTable& kernels, const Product& base, const LowRank& adapter,
                 const View& y)
      : base_(base), adapter_(kernels, adapter), y_(y.as<float>()) {}

  [[nodiscard]] size_t rows() const { return base_.rows(); }
  [[nodiscard]] size_t BlockRows(size_t batch) const { return base_.BlockRows(batch); }
  [[nodiscard]] size_t ScratchBytes(size_t max_batch) const {
    return base_.ScratchBytes(max_batch);
  }

  void Run(size_t batch, size_t n_begin, size_t n_end, std::byte* scratch) const {
    const size_t block = BlockRows(batch);
    for (size_t begin = n_begin; begin < n_end; begin += block) {
      const size_t end = std::min(begin + block, n_end);
      adapter_.FetchRows(batch, begin, end);
      base_.Run(batch, begin, end, scratch);
      adapter_.Add(batch, begin, end, y_ + begin, rows());
    }
  }

  // At most BlockRows() rows, as with Product.
  void RunBlock(size_t batch, size_t n_begin, size_t n_end, float* y, std::byte* scratch) const {
    adapter_.FetchRows(batch, n_begin, n_end);
    base_.RunBlock(batch, n_begin, n_end, y, scratch);
    adapter_.Add(batch, n_begin, n_end, y, BlockRows(batch));
  }

 private:
  Product base_;
  AdapterRows adapter_;
  float* y_;
};

// y = base + what adapters add.
class AdapterSumNode final : public PanelNode {
 public:
  AdapterSumNode(const CompileContext& context, const View& base, const View& y,
                 const LowRank& adapter)
      : PanelNode(context, y, adapter.rows, 0),
        adapter_(context.kernels, adapter),
        rows_(adapter.rows),
        base_(base.as<const float>()),
        y_(y.as<float>()) {}

 private:
  void RunRows(size_t batch, size_t n_begin, size_t n_end, int /*worker*/,
               std::byte* /*scratch*/) override {
    for (size_t row = 0; row < batch; ++row) {
      const size_t at = row * rows_;
      std::copy(base_ + at + n_begin, base_ + at + n_end, y_ + at + n_begin);
    }
    adapter_.Add(batch, n_begin, n_end, y_ + n_begin, rows_);
  }

  AdapterRows adapter_;
  size_t rows_;
  const float* base_;
  float* y_;
};

AdaptedProduct AdaptedProductOf(const CompileContext& context, const View& x, const View& weight,
                                const LowRank& adapter, const View& y) {
  const ProductRows rows = context.nodes.Activations(context, x, weight.dtype);
  return {context.kernels, Product(context, rows, weight, y), adapter, y};
}

// The node of a linear layer whose operands x and weight come first.
void AddLinear(const CompileContext& context, const LowRank& adapter, uint32_t weight) {
  const View x = context.Input(operands::MatMul::x);
  context.nodes.Add(std::make_unique<InnerNode>(context, x, std::span(&adapter, 1)));
  context.nodes.Add(std::make_unique<ProductNode<AdaptedProduct>>(
      context, x, AdaptedProductOf(context, x, context.Input(weight), adapter, context.Result())));
}

// The node of a gated product with the adapters of gate and up.
void AddGated(const CompileContext& context, const std::array<LowRank, 2>& adapters,
              uint32_t gate_weight, uint32_t up_weight) {
  const View x = context.Input(operands::GeGluLinear::x), y = context.Result();
  context.nodes.Add(std::make_unique<InnerNode>(context, x, adapters));
  const AdaptedProduct gate =
      AdaptedProductOf(context, x, context.Input(gate_weight), adapters[0], y);
  const AdaptedProduct up = AdaptedProductOf(context, x, context.Input(up_weight), adapters[1], y);
  context.nodes.Add(std::make_unique<GatedNode<AdaptedProduct>>(context, x, y, gate, up));
}

void CompileAdaptedLinear(const CompileContext& context) {
  using In = operands::AdaptedLinear;
  AddLinear(context, LowRankOf(context, context.Input(In::x), {In::a, In::b}), In::weight);
}

void CompileAdaptedGeGluLinear(const CompileContext& context) {
  using In = operands::AdaptedGeGluLinear;
  const View x = context.Input(In::x);
  AddGated(context,
           {LowRankOf(context, x, {In::gate_a, In::gate_b}),
            LowRankOf(context, x, {In::up_a, In::up_b})},
           In::gate_weight, In::up_weight);
}

// The adapters that rows choose. Operands: those of an op with these operands; `a`: a stack.
template <typename Operands>
Choice ChoiceOf(const CompileContext& context, uint32_t a) {
  return {context.Input(Operands::ids), context.Input(Operands::factors),
          StackedIn(context.Input(a))};
}

void CompileRowAdaptedLinear(const CompileContext& context) {
  using In = operands::RowAdaptedLinear;
  const Choice choice = ChoiceOf<In>(context, In::a);
  AddLinear(context, LowRankOf(context, context.Input(In::x), {In::a, In::b}, choice), In::weight);
}

void CompileRowAdaptedGeGluLinear(const CompileContext& context) {
  using In = operands::RowAdaptedGeGluLinear;
  const View x = context.Input(In::x);
  AddGated(context,
           {LowRankOf(context, x, {In::gate_a, In::gate_b}, ChoiceOf<In>(context, In::gate_a)),
            LowRankOf(context, x, {In::up_a, In::up_b}, ChoiceOf<In>(context, In::up_a))},
           In::gate_weight, In::up_weight);
}

void CompileAdapterSum(const CompileContext& context) {
  using In = operands::AdapterSum;
  const View x = context.Input(In::x);
  const LowRank adapter = LowRankOf(context, x, {In::a, In::b}, ChoiceOf<In>(context, In::a));
  context.nodes.Add(std::make_unique<InnerNode>(context, x, std::span(&adapter, 1)));
  context.nodes.Add(std::make_unique<AdapterSumNode>(context, context.Input(In::base),
                                                     context.Result(), adapter));
}

}  // namespace

const OpRow rows::kAdaptedLinear = {RL_OP_adapted_linear, RefuseWeights, CompileAdaptedLinear};
const OpRow rows::kAdaptedGeGluLinear = {RL_OP_adapted_geglu_linear, RefuseWeights,
                                         CompileAdaptedGeGluLinear};
const OpRow rows::kAdapterSum = {RL_OP_adapter_sum, RefuseWeights, CompileAdapterSum};
const OpRow rows::kRowAdaptedLinear = {RL_OP_row_adapted_linear, RefuseWeights,
                                       CompileRowAdaptedLinear};
const OpRow rows::kRowAdaptedGeGluLinear = {RL_OP_row_adapted_geglu_linear, RefuseWeights,
                                            CompileRowAdaptedGeGluLinear};

}  // namespace rullama::cpu
