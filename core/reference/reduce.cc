// Reductions along the last dimension and over groups of rows, and sorting.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "core/reference/kernels.h"

namespace rullama::reference {
namespace {

// Orderings read NaN as -infinity (docs/numerics.md).
double OrderKey(double x) { return std::isnan(x) ? -kInfinity : x; }

// Returns NaN if any element is NaN.
double Maximum(std::span<const double> x) {
  double max = -kInfinity;
  for (const double value : x) {
    if (std::isnan(value)) return value;
    max = std::max(max, value);
  }
  return max;
}

}  // namespace

Status EvalMeanRows(const Call& call) {
  using In = operands::MeanRows;
  const int64_t group = call.As<rl_mean_rows_attrs>().group;
  const Tensor& x = call.in(In::x);
  for (int64_t r = 0; r < call.y().rows(); ++r) {
    const auto y = Row(call.y(), r);
    for (int64_t i = 0; i < group; ++i) {
      const auto row = Row(x, r * group + i);
      for (size_t j = 0; j < y.size(); ++j) y[j] += row[j];
    }
    for (double& value : y) value /= static_cast<double>(group);
  }
  return OkStatus();
}

Status EvalReduce(const Call& call) {
  using In = operands::Reduce;
  const auto fn = static_cast<rl_reduce>(call.As<rl_reduce_attrs>().fn);
  const Tensor& x = call.in(In::x);
  for (int64_t r = 0; r < RowCount(x); ++r) {
    const auto row = Row(x, r);
    double result = 0;
    if (fn == RL_REDUCE_MAX) {
      result = Maximum(row);
    } else {
      for (const double value : row) result += value;
      if (fn == RL_REDUCE_MEAN) result /= static_cast<double>(row.size());
    }
    call.y().f[static_cast<size_t>(r)] = result;
  }
  return OkStatus();
}

Status EvalArgMax(const Call& call) {
  using In = operands::ArgMax;
  const Tensor& x = call.in(In::x);
  for (int64_t r = 0; r < x.rows(); ++r) {
    const auto row = Row(x, r);
    size_t best = 0;
    for (size_t j = 1; j < row.size(); ++j) {
      if (OrderKey(row[j]) > OrderKey(row[best])) best = j;
    }
    call.y().i[static_cast<size_t>(r)] = static_cast<int64_t>(best);
  }
  return OkStatus();
}

Status EvalTopK(const Call& call) {
  using In = operands::TopK;
  const auto k = static_cast<size_t>(call.As<rl_topk_attrs>().k);
  const Tensor& x = call.in(In::x);
  std::vector<int64_t> order(static_cast<size_t>(x.last()));
  for (int64_t r = 0; r < x.rows(); ++r) {
    const auto row = Row(x, r);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return OrderKey(row[static_cast<size_t>(a)]) > OrderKey(row[static_cast<size_t>(b)]);
    });
    for (size_t j = 0; j < k; ++j) {
      const size_t to = static_cast<size_t>(r) * k + j;
      call.out[0].f[to] = OrderKey(row[static_cast<size_t>(order[j])]);
      call.out[1].i[to] = order[j];
    }
  }
  return OkStatus();
}

Status EvalCumSum(const Call& call) {
  using In = operands::CumSum;
  const Tensor& x = call.in(In::x);
  for (int64_t r = 0; r < RowCount(x); ++r) {
    const auto row = Row(x, r);
    std::partial_sum(row.begin(), row.end(), Row(call.y(), r).begin());
  }
  return OkStatus();
}

void SoftmaxRow(std::span<const double> x, std::span<double> y) {
  const double max = Maximum(x);
  if (max == -kInfinity) {
    std::fill(y.begin(), y.end(), 0.0);
    return;
  }
  double sum = 0;
  for (size_t j = 0; j < x.size(); ++j) {
    y[j] = std::exp(x[j] - max);
    sum += y[j];
  }
  for (double& value : y) value /= sum;
}

Status EvalSoftmax(const Call& call) {
  using In = operands::Softmax;
  const Tensor& x = call.in(In::x);
  for (int64_t r = 0; r < RowCount(x); ++r) SoftmaxRow(Row(x, r), Row(call.y(), r));
  return OkStatus();
}

Status EvalEntropy(const Call& call) {
  using In = operands::Entropy;
  const Tensor& x = call.in(In::x);
  std::vector<double> p(static_cast<size_t>(x.last()));
  for (int64_t r = 0; r < x.rows(); ++r) {
    SoftmaxRow(Row(x, r), p);
    double entropy = 0;
    for (const double mass : p) {
      if (mass != 0) entropy -= mass * std::log(mass);
    }
    call.y().f[static_cast<size_t>(r)] = entropy;
  }
  return OkStatus();
}

}  // namespace rullama::reference
