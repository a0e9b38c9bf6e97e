// Products with the rows of a weight that share a step among the workers: the classes of which the
// nodes of matmul, geglu_linear and their forms with adapters are made.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "backends/cpu/kernels/gemm_blocks.h"
#include "backends/cpu/node.h"
#include "backends/cpu/plan.h"

namespace rullama::cpu {

// One product y[m][n] = x[m] . W[n]; runs it for ranges of rows of W.
class Product {
 public:
  // y: [rows of x][n].
  Product(const CompileContext& context, const ProductRows& x, const View& weight, const View& y)
      : dtype_(weight.dtype), kernels_(context.kernels), x_(x) {
    args_.weights = weight.data;
    args_.packed = weight.packed;
    args_.k = static_cast<size_t>(weight.dims[1].constant);
    args_.row_bytes = static_cast<size_t>(RowBytes(weight.dtype, args_.k));
    args_.y = y.as<float>();
    args_.y_stride = static_cast<size_t>(weight.dims[0].constant);
  }

  // Rows of the weight, which are the columns of y.
  [[nodiscard]] size_t rows() const { return args_.y_stride; }
  // The scratch of a call with up to `max_batch` rows of x.
  [[nodiscard]] size_t ScratchBytes(size_t max_batch) const {
    return MatMulScratchBytes(kernels_, dtype_, args_.k, max_batch);
  }

  void Run(size_t batch, size_t n_begin, size_t n_end, std::byte* scratch) const {
    MatMulArgs a = args_;
    a.n_begin = n_begin;
    a.n_end = n_end;
    Run(batch, a, scratch);
  }

  // The rows of W that GEMM unpacks at a time for this many batch rows.
  [[nodiscard]] size_t BlockRows(size_t batch) const {
    const bool is_split = x_.FormatAt(static_cast<int64_t>(batch)) == ActivationFormat::kSplitBf16;
    return is_split ? kSplitBlockRows : kBlockRows;
  }

  // Like Run(), but writes to y[m][n - n_begin] with BlockRows() floats between batch rows.
  void RunBlock(size_t batch, size_t n_begin, size_t n_end, float* y, std::byte* scratch) const {
    MatMulArgs a = args_;
    a.weights = static_cast<const std::byte*>(args_.weights) + n_begin * args_.row_bytes;
    a.n_end = n_end - n_begin;
    a.y = y;
    a.y_stride = BlockRows(batch);
    Run(batch, a, scratch);
  }

 private:
  void Run(size_t batch, MatMulArgs a, std::byte* scratch) const {
    x_.Describe(static_cast<int64_t>(batch), a);
    a.batch = batch;
    a.scratch = scratch;
    MatMul(kernels_, dtype_, a);
  }

  DType dtype_;
  const KernelTable& kernels_;
  ProductRows x_;
  MatMulArgs args_;  // batch, x, range and scratch are set per call
};

// Items are panels of weight rows; each worker has its own scratch.
class PanelNode : public Node {
 public:
  PanelNode(const CompileContext& context, const View& x, size_t n, size_t scratch_bytes)
      : x_(x), n_(n) {
    for (int worker = 0; worker < context.workers; ++worker) {
      scratch_.push_back(context.workspace.AllocateForOp(scratch_bytes));
    }
  }
  [[nodiscard]] int64_t Items(const Step& step) const override {
    if (x_.Rows(step) == 0) return 0;
    return static_cast<int64_t>((n_ + kPanelRows - 1) / kPanelRows);
  }
  void Run(const Step& step, int worker, int64_t begin, int64_t end) final {
    const auto n_begin = static_cast<size_t>(begin) * kPanelRows;
    const auto n_end = std::min(static_cast<size_t>(end) * kPanelRows, n_);
    RunRows(static_cast<size_t>(x_.Rows(step)), n_begin, n_end, worker,
            scratch_[static_cast<size_t>(worker)]);
  }

 protected:
  virtual void RunRows(size_t batch, size_t n_begin, size_t n_end, int worker,
                       std::byte* scratch) = 0;

 private:
  View x_;
  size_t n_;
  std::vector<std::byte*> scratch_;
};

// The most rows of x in a step.
inline size_t MaxBatch(const CompileContext& context, const View& x) {
  return static_cast<size_t>(x.Rows(context.MaxStep()));
}

// One product with x. P: Product, or a class with its rows(), ScratchBytes() and Run().
template <typename P>
class ProductNode final : public PanelNode {
 public:
  ProductNode(const CompileContext& context, const View& x, P product)
      : PanelNode(context, x, product.rows(), product.ScratchBytes(MaxBatch(context, x))),
        product_(std::move(product)) {}

 private:
  void RunRows(size_t batch, size_t n_begin, size_t n_end, int /*worker*/,
               std::byte* scratch) override {
    product_.Run(batch, n_begin, n_end, scratch);
  }

  P product_;
};

// gelu(gate) * up of two products with x, both made for y. One worker computes both products of a
// block of weight rows and then applies the activation to that block while it is in cache. P:
// Product, or a class with its public functions.
template <typename P>
class GatedNode final : public PanelNode {
 public:
  GatedNode(const CompileContext& context, const View& x, const View& y, P gate, P up)
      : PanelNode(context, x, gate.rows(),
                  std::max(gate.ScratchBytes(MaxBatch(context, x)),
                           up.ScratchBytes(MaxBatch(context, x)))),
        kernels_(context.kernels),
        n_(gate.rows()),
        y_(y.as<float>()),
        gate_(std::move(gate)),
        up_(std::move(up)) {
    const size_t rows = MaxBatch(context, x);
    for (int worker = 0; worker < context.workers; ++worker) {
      up_y_.push_back(reinterpret_cast<float*>(
          context.workspace.AllocateForOp(rows * up_.BlockRows(rows) * sizeof(float))));
    }
  }

 private:
  void RunRows(size_t batch, size_t n_begin, size_t n_end, int worker,
               std::byte* scratch) override {
    float* up = up_y_[static_cast<size_t>(worker)];
    const size_t block = up_.BlockRows(batch);
    for (size_t begin = n_begin; begin < n_end; begin += block) {
      const size_t end = std::min(begin + block, n_end);
      gate_.Run(batch, begin, end, scratch);
      up_.RunBlock(batch, begin, end, up, scratch);
      for (size_t m = 0; m < batch; ++m) {
        float* y = y_ + m * n_ + begin;
        kernels_.geglu(y, up + m * block, end - begin, y);
      }
    }
  }

  const KernelTable& kernels_;
  size_t n_;
  float* y_;
  P gate_;
  P up_;
  std::vector<float*> up_y_;  // per worker: [rows of x][up_.BlockRows()]
};

}  // namespace rullama::cpu
