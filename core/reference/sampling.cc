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

// Each filter keeps some logits of a row; the others become -infinity.
std::vector<double> TopP(const std::vector<double>& row, double p) {
  std::vector<size_t> order(row.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::vector<double> y(row.size());
  KeepMass(row, order, p, y);
  return y;
}

std::vector<double> MinP(std::vector<double> row, double log_p) {
  const double threshold = *std::max_element(row.begin(), row.end()) + log_p;
  for (double& x : row) x = x >= threshold ? x : -kInfinity;
  return row;
}

std::vector<double> TypicalP(const std::vector<double>& row, double p) {
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
  std::vector<double> y(row.size());
  KeepMass(row, order, p, y);
  return y;
}

// Inverse CDF; -1 if nothing has mass.
int64_t DrawColumn(const std::vector<double>& row, double u) {
  const double max = *std::max_element(row.begin(), row.end());
  if (max == -kInfinity) return -1;
  double sum = 0;
  for (const double x : row) sum += std::exp(x - max);
  const double target = u * sum;
  double running = 0;
  int64_t chosen = -1;
  for (size_t j = 0; j < row.size(); ++j) {
    const double mass = std::exp(row[j] - max);
    if (mass > 0) chosen = static_cast<int64_t>(j);
    running += mass;
    if (running > target) break;
  }
  return chosen;
}

void Store(const std::vector<double>& row, std::span<double> y) {
  std::copy(row.begin(), row.end(), y.begin());
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
  const double p = call.As<rl_top_p_mask_attrs>().p;
  for (int64_t r = 0; r < call.y().rows(); ++r) {
    Store(TopP(OrderedRow(call.in(operands::TopPMask::x), r), p), Row(call.y(), r));
  }
  return OkStatus();
}

Status EvalMinPMask(const Call& call) {
  const double log_p = std::log(double{call.As<rl_min_p_mask_attrs>().p});
  for (int64_t r = 0; r < call.y().rows(); ++r) {
    Store(MinP(OrderedRow(call.in(operands::MinPMask::x), r), log_p), Row(call.y(), r));
  }
  return OkStatus();
}

Status EvalTypicalPMask(const Call& call) {
  const double p = call.As<rl_typical_p_mask_attrs>().p;
  for (int64_t r = 0; r < call.y().rows(); ++r) {
    Store(TypicalP(OrderedRow(call.in(operands::TypicalPMask::x), r), p), Row(call.y(), r));
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
    const auto row = static_cast<size_t>(r);
    call.y().i[row] = DrawColumn(OrderedRow(call.in(In::x), r), call.in(In::u).f[row]);
  }
  return OkStatus();
}

Status EvalTokenMask(const Call& call) {
  using In = operands::TokenMask;
  call.y() = call.in(In::logits);
  const Tensor& bits = call.in(In::bits);
  for (int64_t r = 0; r < call.y().rows(); ++r) {
    const auto y = Row(call.y(), r);
    const auto first = static_cast<size_t>(r * bits.last());
    for (size_t j = 0; j < y.size(); ++j) {
      const auto word = static_cast<uint32_t>(bits.i[first + j / 32]);
      if ((word >> (j % 32) & 1) == 0) y[j] = -kInfinity;
    }
  }
  return OkStatus();
}

Status EvalRowBias(const Call& call) {
  using In = operands::RowBias;
  call.y() = call.in(In::logits);
  const Tensor& ids = call.in(In::ids);
  const int64_t count = ids.last();
  for (int64_t i = 0; i < ids.rows() * count; ++i) {
    const int64_t id = ids.i[static_cast<size_t>(i)];
    if (id == -1) continue;
    if (id < 0 || id >= call.y().last()) {
      return IndexError(call, "id {} is outside the {} columns", id, call.y().last());
    }
    Row(call.y(), i / count)[static_cast<size_t>(id)] +=
        call.in(In::bias).f[static_cast<size_t>(i)];
  }
  return OkStatus();
}

Status EvalRowUniform(const Call& call) {
  using In = operands::RowUniform;
  const auto word = [](int64_t value) { return static_cast<uint32_t>(value); };
  const std::vector<int64_t>& key = call.in(In::key).i;
  for (size_t r = 0; r < call.y().f.size(); ++r) {
    const uint64_t seed = uint64_t{word(key[3 * r + 1])} << 32 | word(key[3 * r]);
    call.y().f[r] = PhiloxUniform(seed, word(call.in(In::pos).i[r]), word(key[3 * r + 2]), 0);
  }
  return OkStatus();
}

Status EvalRowSample(const Call& call) {
  using In = operands::RowSample;
  for (int64_t r = 0; r < call.in(In::x).rows(); ++r) {
    const auto row = static_cast<size_t>(r);
    const auto settings = Row(call.in(In::settings), r);
    const double scale = settings[0], top_k = settings[1], top_p = settings[2];
    const double log_min_p = settings[3], typical_p = settings[4];
    std::vector<double> x = OrderedRow(call.in(In::x), r);
    if (scale == 0) {
      const auto best = std::max_element(x.begin(), x.end());
      call.y().i[row] = *best == -kInfinity ? -1 : best - x.begin();
      continue;
    }
    for (size_t j = 0; top_k > 0 && j < x.size(); ++j) {
      if (static_cast<double>(j) >= top_k) x[j] = -kInfinity;
    }
    if (typical_p < 1) x = TypicalP(x, typical_p);
    if (top_p < 1) x = TopP(x, top_p);
    x = MinP(std::move(x), log_min_p);
    for (double& z : x) z *= scale;
    call.y().i[row] = DrawColumn(x, call.in(In::u).f[row]);
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
