// Matrix products. Activations are converted once for all products that read the same value.
#include <algorithm>
#include <memory>
#include <vector>

#include "backends/cpu/kernels/stored_product.h"
#include "backends/cpu/matmul_nodes.h"
#include "backends/cpu/op_rows.h"
#include "backends/cpu/product.h"

namespace rullama::cpu {
namespace {

// y = x W with W [k, n] not transposed. Each item is a span of columns of W and a block of rows of
// x; a few rows of W are dequantised at a time. Rows of W are skipped if their factors are zero in
// every row of x, as most are in the soft embedding.
class MatMulNoTransposeNode final : public Node {
 public:
  MatMulNoTransposeNode(const CompileContext& context, const View& x, const View& weight,
                        const View& y)
      : kernels_(context.kernels),
        weight_kernels_(FindWeight(context.kernels, weight.dtype)),
        x_(x),
        weight_(weight),
        y_(y),
        n_(weight.Last(context.MaxStep())),
        workers_(context.workers),
        spans_((n_ + kSpan - 1) / kSpan) {
    const bool stored = UsesStoredKernel(x.Rows(context.MaxStep()), kSpan);
    const int64_t depth = stored ? kStoredDepth : kDepth;
    for (int worker = 0; worker < context.workers; ++worker) {
      unpacked_.push_back(reinterpret_cast<float*>(
          context.workspace.AllocateForOp(static_cast<uint64_t>(depth * kSpan) * sizeof(float))));
      scratch_.push_back(stored ? context.workspace.AllocateForOp(kernels_.stored_scratch_bytes)
                                : nullptr);
    }
  }
  [[nodiscard]] int64_t Items(const Step& step) const override {
    return x_.Rows(step) == 0 ? 0 : spans_ * BlocksOf(x_.Rows(step));
  }
  void Run(const Step& step, int worker, int64_t begin, int64_t end) override {
    const int64_t rows = x_.Rows(step), k = weight_.Rows(step), blocks = BlocksOf(rows);
    for (int64_t item = begin; item < end; ++item) {
      const int64_t first = item / blocks * kSpan, block = item % blocks;
      const Part part{.begin = rows * block / blocks,
                      .end = rows * (block + 1) / blocks,
                      .k = k,
                      .first = first,
                      .count = static_cast<size_t>(std::min(kSpan, n_ - first))};
      const auto w = static_cast<size_t>(worker);
      UsesStoredKernel(rows, static_cast<int64_t>(part.count))
          ? RunStored(part, unpacked_[w], scratch_[w])
          : RunFloat(part, unpacked_[w]);
    }
  }

 private:
  // A multiple of every block length, so that each span starts at a block.
  static constexpr int64_t kSpan = kStoredSpan;
  // The least rows of x of a block: below it, dequantising takes longer than multiplying.
  static constexpr int64_t kBlock = 128;
  // Rows of W that are dequantised together: 16 KiB, half of L1, or what the kernel takes.
  static constexpr int64_t kDepth = 16;
  static constexpr int64_t kStep = kStoredStep;
  static constexpr int64_t kStoredDepth = kStep * kMaxStoredSteps;

  // The blocks into which rows of x are cut, so that there is work for all workers.
  [[nodiscard]] int64_t BlocksOf(int64_t rows) const {
    return std::clamp<int64_t>(workers_ / spans_, 1, std::max<int64_t>(rows / kBlock, 1));
  }

  // Rows [begin, end) of x and y, columns [first, first + count) of W and y; k rows of W.
  struct Part {
    int64_t begin, end, k, first;
    size_t count;
  };

  // By the shapes of the step alone, so that a row gets the same bytes whatever the others are. F32
  // weights keep all their bits; F16 and BF16 weights change over with those of other products.
  [[nodiscard]] bool UsesStoredKernel(int64_t rows, int64_t columns) const {
    const bool is_block = IsBlockType(weight_.dtype);
    if (kernels_.add_stored_product == nullptr ||
        (!is_block && weight_kernels_->split_gemm == nullptr)) {
      return false;
    }
    return static_cast<size_t>(rows) >= (is_block ? kMinStoredBatch : kernels_.split_min_batch) &&
           columns % static_cast<int64_t>(kStoredColumns) == 0;
  }

  void RunFloat(const Part& part, float* unpacked) const {
    Clear(part);
    for (int64_t i = 0; i < part.k; i += kDepth) {
      const int64_t depth = std::min(kDepth, part.k - i);
      if (!Unpack(part, i, depth, /*whole=*/false, unpacked)) continue;
      kernels_.add_weighted_rows({.factors = x_.as<const float>() + part.begin * part.k + i,
                                  .output_stride = static_cast<size_t>(part.k),
                                  .rows = unpacked,
                                  .row_stride = kSpan,
                                  .count = static_cast<size_t>(depth),
                                  .columns = part.count,
                                  .y = y_.as<float>() + part.begin * n_ + part.first,
                                  .y_stride = static_cast<size_t>(n_),
                                  .outputs = static_cast<size_t>(part.end - part.begin)});
    }
  }

  void RunStored(const Part& part, float* unpacked, std::byte* scratch) const {
    size_t begins[kMaxStoredSteps];
    StoredProductArgs args{.rows = unpacked,
                           .begins = begins,
                           .columns = part.count,
                           .k = static_cast<size_t>(part.k),
                           .x = x_.as<const float>() + part.begin * part.k,
                           .batch = static_cast<size_t>(part.end - part.begin),
                           .y = y_.as<float>() + part.begin * n_ + part.first,
                           .y_stride = static_cast<size_t>(n_),
                           .scratch = scratch};
    const auto multiply = [&] {
      kernels_.add_stored_product(args);
      args.add = true;
      args.steps = 0;
    };
    for (int64_t i = 0; i < part.k; i += kStep) {
      float* rows = unpacked + args.steps * kStoredStep * kStoredSpan;
      const int64_t depth = std::min(kStep, part.k - i);
      if (!Unpack(part, i, depth, kernels_.stored_product_rounds, rows)) continue;
      std::fill(rows + depth * kSpan, rows + kStep * kSpan, 0.0f);
      begins[args.steps++] = static_cast<size_t>(i);
      if (args.steps == kMaxStoredSteps) multiply();
    }
    if (args.steps > 0) multiply();
    if (!args.add) Clear(part);
  }

  void Clear(const Part& part) const {
    for (int64_t m = part.begin; m < part.end; ++m) {
      std::fill_n(y_.as<float>() + m * n_ + part.first, part.count, 0.0f);
    }
  }

  // Whether a row of the part multiplies row i of W by anything but zero.
  [[nodiscard]] bool IsUsed(const Part& part, int64_t i) const {
    const float* factor = x_.as<const float>() + i;
    for (int64_t m = part.begin; m < part.end; ++m) {
      if (factor[m * part.k] != 0) return true;
    }
    return false;
  }

  // Dequantises the columns of a part of rows [i, i + depth) of W, at most kStep. Returns false if
  // none is used. Unused rows become zeros, but not with `whole`: a kernel that rounds all rows of
  // a step together would give a row of x other bytes where other rows of x use other rows of W.
  bool Unpack(const Part& part, int64_t i, int64_t depth, bool whole, float* unpacked) const {
    bool used[kStep];
    for (int64_t d = 0; d < depth; ++d) used[d] = IsUsed(part, i + d);
    if (std::find(used, used + depth, true) == used + depth) return false;
    for (int64_t d = 0; d < depth; ++d) {
      float* row = unpacked + d * kSpan;
      if (used[d] || whole) {
        ReadRow(*weight_kernels_, weight_.dtype,
                {weight_.data, weight_.packed, static_cast<size_t>(n_), static_cast<size_t>(i + d)},
                static_cast<size_t>(part.first), part.count, row);
      } else {
        std::fill_n(row, part.count, 0.0f);
      }
    }
    return true;
  }

  const KernelTable& kernels_;
  const WeightKernels* weight_kernels_;
  View x_, weight_, y_;
  int64_t n_, workers_, spans_;
  std::vector<float*> unpacked_;  // per worker
  std::vector<std::byte*> scratch_;
};

// `rows`: those of x for the product.
void AddProductOf(const CompileContext& context, const View& x, const ProductRows& rows,
                  const View& weight, const View& y) {
  context.nodes.Add(
      std::make_unique<ProductNode<Product>>(context, x, Product(context, rows, weight, y)));
}

void CompileMatMul(const CompileContext& context) {
  const View x = context.Input(operands::MatMul::x);
  const View weight = context.Input(operands::MatMul::weight);
  if (context.attrs<rl_matmul_attrs>().transpose_weight == 0) {
    AddProductAsStored(context, x, weight, context.Result());
    return;
  }
  AddProductOf(context, x, context.nodes.Activations(context, x, weight.dtype), weight,
               context.Result());
}

void CompileGeGluLinear(const CompileContext& context) {
  using In = operands::GeGluLinear;
  const View x = context.Input(In::x), y = context.Result();
  const auto product = [&](uint32_t operand) {
    const View weight = context.Input(operand);
    return Product(context, context.nodes.Activations(context, x, weight.dtype), weight, y);
  };
  const Product gate = product(In::gate_weight), up = product(In::up_weight);
  context.nodes.Add(std::make_unique<GatedNode<Product>>(context, x, y, gate, up));
}

// A weight may be a state or computed if it is f32, which products read as it is.
std::string RefuseMatMul(const sdk::GraphView& graph, const rl_op& op, const KernelTable& kernels) {
  const rl_value& weight = *graph.input(op, operands::MatMul::weight);
  const bool constant = weight.lifetime == RL_LIFETIME_CONSTANT;
  return !constant && weight.dtype == RL_DTYPE_F32 ? "" : RefuseWeights(graph, op, kernels);
}

}  // namespace

void AddProduct(const CompileContext& context, const View& x, const View& weight, const View& y) {
  AddProductOf(context, x, context.nodes.ActivationsOnce(context, x, weight.dtype), weight, y);
}

void AddProductAsStored(const CompileContext& context, const View& x, const View& weight,
                        const View& y) {
  context.nodes.Add(std::make_unique<MatMulNoTransposeNode>(context, x, weight, y));
}

const OpRow rows::kMatMul = {RL_OP_matmul, RefuseMatMul, CompileMatMul};
const OpRow rows::kGeGluLinear = {RL_OP_geglu_linear, RefuseWeights, CompileGeGluLinear};

}  // namespace rullama::cpu
