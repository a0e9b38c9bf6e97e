// Sampling: bias, truncation masks, random numbers and the draw.
#include <rullama/sdk/philox.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "core/reference/kernels.h"

namespace rullama::reference {
namespace {

// A row with NaN replaced by -infinity, as the sampling ops read it (docs/numerics.md).
std::vector<double> OrderedRow(const Tensor& x, int64_t r) {
  const auto row = Row(x, r);
  std::vector<double> values(row.begin(), row.end());
  for (double& value : values) {
    if (std::isnan(value)) value = -kInfinity;
  }
  return values;
}

std::vector<double> Probabilities(const std::vector<double>& row) {
  std::vector<double> p(row.size());
  SoftmaxRow(row, p);
  return p;
}

// Keeps the columns of `row` in this order while the mass before them is below p, and always the
// first. p = 1 keeps all columns, so that rounding of the running sum cannot drop one.
void KeepMass(const std::vector<double>& row, std::span<const size_t> order, double p,
              std::span<double> y) {
  const std::vector<double> probability = Probabilities(row);
  double before = 0;
  for (size_t rank = 0; rank < order.size(); ++rank) {
    const size_t j = order[rank];
    y[j] = rank == 0 || p >= 1 || before < p ? row[j] : -kInfinity;
    before += probability[j];
  }
}

}  // namespace

Status EvalBiasAdd(const Call& call) {
  using In = operands::BiasAdd;
  call.y() = call.in(In::logits);
  for (size_t k = 0; k < call.in(In::ids).i.size(); ++k) {
    const int64_t id = call.in(In::ids).i[k];
    if (id < 0 || id >= call.y().last()) {
      return IndexError(call, "id {} is outside the {} columns", id, call.y().last());
    }
    for (int64_t r = 0; r < call.y().rows(); ++r) {
      Row(call.y(), r)[static_cast<size_t>(id)] += call.in(In::bias).f[k];
    }
  }
  return OkStatus();
}

Status EvalTopPMask(const Call& call) {
  using In = operands::TopPMask;
  const double p = call.As<rl_top_p_mask_attrs>().p;
  std::vector<size_t> order(static_cast<size_t>(call.in(In::x).last()));
  std::iota(order.begin(), order.end(), size_t{0});
  for (int64_t r = 0; r < call.y().rows(); ++r) {
    KeepMass(OrderedRow(call.in(In::x), r), order, p, Row(call.y(), r));
  }
  return OkStatus();
}

Status EvalMinPMask(const Call& call) {
  using In = operands::MinPMask;
  const double log_p = std::log(double{call.As<rl_min_p_mask_attrs>().p});
  for (int64_t r = 0; r < call.y().rows(); ++r) {
    const std::vector<double> row = OrderedRow(call.in(In::x), r);
    const double threshold = *std::max_element(row.begin(), row.end()) + log_p;
    const auto y = Row(call.y(), r);
    for (size_t j = 0; j < row.size(); ++j) y[j] = row[j] >= threshold ? row[j] : -kInfinity;
  }
  return OkStatus();
}

Status EvalTypicalPMask(const Call& call) {
  using In = operands::TypicalPMask;
  const double p = call.As<rl_typical_p_mask_attrs>().p;
  for (int64_t r = 0; r < call.y().rows(); ++r) {
    const std::vector<double> row = OrderedRow(call.in(In::x), r);
    const std::vector<double> probability = Probabilities(row);
    double entropy = 0;
    for (const double q : probability) entropy -= q > 0 ? q * std::log(q) : 0;
    std::vector<double> surprise(row.size());
    for (size_t j = 0; j < row.size(); ++j) {
      surprise[j] = std::abs(-std::log(probability[j]) - entropy);
    }
    std::vector<size_t> order(row.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, {}, [&](size_t j) { return surprise[j]; });
    KeepMass(row, order, p, Row(call.y(), r));
  }
  return OkStatus();
}

Status EvalRandomUniform(const Call& call) {
  using In = operands::RandomUniform;
  const auto word = [](int64_t value) { return static_cast<uint32_t>(value); };
  const Tensor& seed = call.in(In::seed);
  const uint64_t key = uint64_t{word(seed.i[1])} << 32 | word(seed.i[0]);
  const auto stream = static_cast<uint32_t>(call.As<rl_random_uniform_attrs>().stream);
  for (size_t r = 0; r < call.y().f.size(); ++r) {
    call.y().f[r] =
        PhiloxUniform(key, word(call.in(In::pos).i[r]), word(call.in(In::slot).i[r]), stream);
  }
  return OkStatus();
}

Status EvalCategorical(const Call& call) {
  using In = operands::Categorical;
  for (int64_t r = 0; r < call.in(In::x).rows(); ++r) {
    const std::vector<double> row = OrderedRow(call.in(In::x), r);
    const double max = *std::max_element(row.begin(), row.end());
    int64_t chosen = -1;
    if (max > -kInfinity) {
      double sum = 0;
      for (const double x : row) sum += std::exp(x - max);
      const double target = call.in(In::u).f[static_cast<size_t>(r)] * sum;
      double running = 0;
      for (size_t j = 0; j < row.size(); ++j) {
        const double mass = std::exp(row[j] - max);
        if (mass > 0) chosen = static_cast<int64_t>(j);
        running += mass;
        if (running > target) break;
      }
    }
    call.y().i[static_cast<size_t>(r)] = chosen;
  }
  return OkStatus();
}

Status EvalEntropyAccept(const Call& call) {
  using In = operands::EntropyAccept;
  const double bound = call.As<rl_entropy_accept_attrs>().bound;
  const std::vector<double>& entropy = call.in(In::entropy).f;
  std::vector<size_t> order(entropy.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(
      order, {}, [&](size_t row) { return std::isnan(entropy[row]) ? kInfinity : entropy[row]; });
  double before = 0;
  for (const size_t row : order) {
    call.y().f[row] = before <= bound && !std::isnan(entropy[row]) ? 1 : 0;
    before += entropy[row];
  }
  return OkStatus();
}

}  // namespace rullama::reference
