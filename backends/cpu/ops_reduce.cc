// Reductions and sorting along the last dimension.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "backends/cpu/op_rows.h"

namespace rullama::cpu {
namespace {

class ReduceNode final : public Node {
 public:
  explicit ReduceNode(const CompileContext& context)
      : kernels_(context.kernels),
        fn_(context.attrs<rl_reduce_attrs>().fn),
        x_(context.Input(operands::Reduce::x)),
        y_(context.Result()) {}
  [[nodiscard]] int64_t Items(const Step& step) const override { return x_.Rows(step); }
  void Run(const Step& step, int /*worker*/, int64_t begin, int64_t end) override {
    const auto n = static_cast<size_t>(x_.Last(step));
    const size_t per_row = static_cast<size_t>(x_.RowElements(step)) / n;
    for (size_t i = static_cast<size_t>(begin) * per_row; i < static_cast<size_t>(end) * per_row;
         ++i) {
      y_.as<float>()[i] = Reduce(x_.as<const float>() + i * n, n);
    }
  }

 private:
  [[nodiscard]] float Reduce(const float* x, size_t n) const {
    if (fn_ == RL_REDUCE_MAX) return kernels_.max(x, n);
    const double sum = kernels_.sum(x, n);
    return static_cast<float>(fn_ == RL_REDUCE_MEAN ? sum / static_cast<double>(n) : sum);
  }

  const KernelTable& kernels_;
  int32_t fn_;
  View x_, y_;
};

class ArgMaxNode final : public Node {
 public:
  explicit ArgMaxNode(const CompileContext& context)
      : kernels_(context.kernels), x_(context.Input(operands::ArgMax::x)), y_(context.Result()) {}
  [[nodiscard]] int64_t Items(const Step& step) const override { return x_.Rows(step); }
  void Run(const Step& step, int /*worker*/, int64_t begin, int64_t end) override {
    const auto n = static_cast<size_t>(x_.Last(step));
    for (int64_t row = begin; row < end; ++row) {
      y_.as<int32_t>()[row] = static_cast<int32_t>(
          kernels_.argmax(x_.as<const float>() + static_cast<size_t>(row) * n, n));
    }
  }

 private:
  const KernelTable& kernels_;
  View x_, y_;
};

// NaN counts as -infinity.
float OrderKey(float x) { return std::isnan(x) ? -std::numeric_limits<float>::infinity() : x; }

// Sorts indices by descending value; equal values by ascending index.
struct DescendingOrder {
  const float* x;
  bool operator()(int32_t a, int32_t b) const {
    const float va = OrderKey(x[a]);
    const float vb = OrderKey(x[b]);
    return va != vb ? va > vb : a < b;
  }
};

class TopKNode final : public Node {
 public:
  explicit TopKNode(const CompileContext& context)
      : k_(static_cast<size_t>(context.attrs<rl_topk_attrs>().k)),
        x_(context.Input(operands::TopK::x)),
        values_(context.Result(0)),
        indices_(context.Result(1)) {
    const auto n = static_cast<size_t>(x_.Last(context.MaxStep()));
    for (int worker = 0; worker < context.workers; ++worker) {
      order_.push_back(reinterpret_cast<int32_t*>(context.workspace.Allocate(n * sizeof(int32_t))));
    }
  }
  [[nodiscard]] int64_t Items(const Step& step) const override { return x_.Rows(step); }
  void Run(const Step& step, int worker, int64_t begin, int64_t end) override {
    const auto n = static_cast<size_t>(x_.Last(step));
    int32_t* order = order_[static_cast<size_t>(worker)];
    for (int64_t row = begin; row < end; ++row) {
      const float* x = x_.as<const float>() + static_cast<size_t>(row) * n;
      const size_t found = Select(x, n, order);
      if (found == k_) {
        std::sort(order, order + k_, DescendingOrder{x});  // several times as fast
      } else {
        std::partial_sort(order, order + k_, order + found, DescendingOrder{x});
      }
      for (size_t i = 0; i < k_; ++i) {
        const size_t at = static_cast<size_t>(row) * k_ + i;
        indices_.as<int32_t>()[at] = order[i];
        values_.as<float>()[at] = OrderKey(x[order[i]]);
      }
    }
  }

 private:
  // Writes the indices of at least k candidates that include the k largest and returns their
  // number. For a small k of a large row this is one scan against a threshold, the k-th largest
  // value when the list was last full, and costs little more than reading x.
  size_t Select(const float* x, size_t n, int32_t* order) const {
    if (k_ * 4 >= n) {
      std::iota(order, order + n, 0);
      return n;
    }
    const size_t limit = std::max<size_t>(2 * k_, 256);
    size_t count = 0;
    float threshold = -std::numeric_limits<float>::infinity();
    bool bounded = false;
    for (size_t i = 0; i < n; ++i) {
      // An equal value with a higher index sorts after it, so it is not a candidate.
      if (bounded && !(x[i] > threshold)) continue;
      order[count++] = static_cast<int32_t>(i);
      if (count < limit || n - i - 1 == 0) continue;
      std::nth_element(order, order + k_ - 1, order + count, DescendingOrder{x});
      count = k_;
      bounded = true;
      threshold = OrderKey(x[order[k_ - 1]]);
    }
    return count;
  }

  size_t k_;
  View x_, values_, indices_;
  std::vector<int32_t*> order_;
};

class CumSumNode final : public Node {
 public:
  explicit CumSumNode(const CompileContext& context)
      : x_(context.Input(operands::CumSum::x)), y_(context.Result()) {}
  [[nodiscard]] int64_t Items(const Step& step) const override { return x_.Rows(step); }
  void Run(const Step& step, int /*worker*/, int64_t begin, int64_t end) override {
    const int64_t n = x_.Last(step);
    const int64_t row = x_.RowElements(step);
    for (int64_t at = begin * row; at < end * row; at += n) {
      double sum = 0;
      for (int64_t i = at; i < at + n; ++i) {
        sum += x_.as<const float>()[i];
        y_.as<float>()[i] = static_cast<float>(sum);
      }
    }
  }

 private:
  View x_, y_;
};

}  // namespace

const OpRow rows::kReduce = {RL_OP_reduce, nullptr, AddNode<ReduceNode>};
const OpRow rows::kArgMax = {RL_OP_argmax, nullptr, AddNode<ArgMaxNode>};
const OpRow rows::kTopK = {RL_OP_topk, nullptr, AddNode<TopKNode>};
const OpRow rows::kCumSum = {RL_OP_cumsum, nullptr, AddNode<CumSumNode>};

}  // namespace rullama::cpu
