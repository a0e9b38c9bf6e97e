// Filters of logits and draws. Items are rows; sums are float64 as in the reference.
#include <rullama/sdk/philox.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "backends/cpu/op_rows.h"

namespace rullama::cpu {
namespace {

// The logit of an excluded token.
constexpr float kBanned = -std::numeric_limits<float>::infinity();

// Memory of one worker for the filters.
struct FilterMemory {
  FilterMemory(const CompileContext& context, size_t n)
      : probability(reinterpret_cast<double*>(context.workspace.Allocate(n * sizeof(double)))),
        order(reinterpret_cast<int32_t*>(context.workspace.Allocate(n * sizeof(int32_t)))) {}

  double* probability;
  int32_t* order;
};

// Softmax in float64; zeros if every x is -inf.
void Softmax(const float* x, size_t n, double* probability) {
  double max = -std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < n; ++i) max = std::max<double>(max, x[i]);
  double sum = 0;
  for (size_t i = 0; i < n; ++i) {
    probability[i] = std::isinf(max) ? 0.0 : std::exp(static_cast<double>(x[i]) - max);
    sum += probability[i];
  }
  for (size_t i = 0; i < n && sum > 0; ++i) probability[i] /= sum;
}

// Sampling filters: y = x for the tokens that are kept, -inf for the others. y may be x.
void FilterTopP(const float* x, size_t n, float p, const FilterMemory& memory, float* y) {
  Softmax(x, n, memory.probability);
  double before = 0;
  for (size_t i = 0; i < n; ++i) {
    y[i] = i == 0 || before < p ? x[i] : kBanned;
    before += memory.probability[i];
  }
}

void FilterMinP(const float* x, size_t n, float log_p, float* y) {
  const float limit = *std::max_element(x, x + n) + log_p;
  for (size_t i = 0; i < n; ++i) y[i] = x[i] >= limit ? x[i] : kBanned;
}

void FilterTypicalP(const float* x, size_t n, float p, const FilterMemory& memory, float* y) {
  const double* probability = memory.probability;
  int32_t* order = memory.order;
  Softmax(x, n, memory.probability);
  double entropy = 0;
  for (size_t i = 0; i < n; ++i) {
    if (probability[i] > 0) entropy -= probability[i] * std::log(probability[i]);
  }
  const auto distance = [&](int32_t i) {
    const double q = probability[i];
    return q > 0 ? std::fabs(-std::log(q) - entropy) : std::numeric_limits<double>::infinity();
  };
  std::iota(order, order + n, 0);
  std::sort(order, order + n, [&](int32_t a, int32_t b) {
    const double da = distance(a);
    const double db = distance(b);
    return da != db ? da < db : a < b;
  });
  double before = 0;
  for (size_t i = 0; i < n; ++i) {
    y[order[i]] = i == 0 || before < p ? x[order[i]] : kBanned;
    before += probability[order[i]];
  }
}

class MaskNode : public Node {
 public:
  MaskNode(const CompileContext& context, uint32_t x, float p)
      : p_(p), x_(context.Input(x)), y_(context.Result()) {
    const auto n = static_cast<size_t>(x_.Last(context.MaxStep()));
    for (int worker = 0; worker < context.workers; ++worker) memory_.emplace_back(context, n);
  }
  [[nodiscard]] int64_t Items(const Step& step) const override { return y_.Rows(step); }
  void Run(const Step& step, int worker, int64_t begin, int64_t end) final {
    const auto n = static_cast<size_t>(y_.Last(step));
    for (int64_t row = begin; row < end; ++row) {
      const size_t at = static_cast<size_t>(row) * n;
      Filter(x_.as<const float>() + at, n, memory_[static_cast<size_t>(worker)],
             y_.as<float>() + at);
    }
  }

 protected:
  virtual void Filter(const float* x, size_t n, const FilterMemory& memory, float* y) const = 0;

  float p_;

 private:
  View x_, y_;
  std::vector<FilterMemory> memory_;  // by worker
};

class TopPMaskNode final : public MaskNode {
 public:
  explicit TopPMaskNode(const CompileContext& context)
      : MaskNode(context, operands::TopPMask::x, context.attrs<rl_top_p_mask_attrs>().p) {}

 private:
  void Filter(const float* x, size_t n, const FilterMemory& memory, float* y) const override {
    FilterTopP(x, n, p_, memory, y);
  }
};

class MinPMaskNode final : public MaskNode {
 public:
  explicit MinPMaskNode(const CompileContext& context)
      : MaskNode(context, operands::MinPMask::x, context.attrs<rl_min_p_mask_attrs>().p) {}

 private:
  void Filter(const float* x, size_t n, const FilterMemory& /*memory*/, float* y) const override {
    FilterMinP(x, n, std::log(p_), y);
  }
};

class TypicalPMaskNode final : public MaskNode {
 public:
  explicit TypicalPMaskNode(const CompileContext& context)
      : MaskNode(context, operands::TypicalPMask::x, context.attrs<rl_typical_p_mask_attrs>().p) {}

 private:
  void Filter(const float* x, size_t n, const FilterMemory& memory, float* y) const override {
    FilterTypicalP(x, n, p_, memory, y);
  }
};

class RandomUniformNode final : public Node {
 public:
  explicit RandomUniformNode(const CompileContext& context)
      : stream_(static_cast<uint32_t>(context.attrs<rl_random_uniform_attrs>().stream)),
        seed_(context.Input(operands::RandomUniform::seed)),
        pos_(context.Input(operands::RandomUniform::pos)),
        slot_(context.Input(operands::RandomUniform::slot)),
        y_(context.Result()) {}
  [[nodiscard]] int64_t Items(const Step& step) const override { return y_.Rows(step); }
  void Run(const Step& /*step*/, int /*worker*/, int64_t begin, int64_t end) override {
    const auto* words = seed_.as<const uint32_t>();
    const uint64_t seed = words[0] | (static_cast<uint64_t>(words[1]) << 32);
    for (int64_t row = begin; row < end; ++row) {
      y_.as<float>()[row] = PhiloxUniform(seed, pos_.as<const uint32_t>()[row],
                                          slot_.as<const uint32_t>()[row], stream_);
    }
  }

 private:
  uint32_t stream_;
  View seed_, pos_, slot_, y_;
};

class RowUniformNode final : public Node {
 public:
  explicit RowUniformNode(const CompileContext& context)
      : key_(context.Input(operands::RowUniform::key)),
        pos_(context.Input(operands::RowUniform::pos)),
        y_(context.Result()) {}
  [[nodiscard]] int64_t Items(const Step& step) const override { return y_.Rows(step); }
  void Run(const Step& /*step*/, int /*worker*/, int64_t begin, int64_t end) override {
    for (int64_t row = begin; row < end; ++row) {
      const uint32_t* key = key_.as<const uint32_t>() + row * 3;
      const uint64_t seed = key[0] | (static_cast<uint64_t>(key[1]) << 32);
      y_.as<float>()[row] = PhiloxUniform(seed, pos_.as<const uint32_t>()[row], key[2], 0);
    }
  }

 private:
  View key_, pos_, y_;
};

double MassOf(float x, double max) { return std::exp(static_cast<double>(x) - max); }

// The first token at which the cumulative mass exceeds u times the total; -1 if every x is -inf.
int32_t DrawColumn(const float* x, size_t n, float u) {
  double max = -std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < n; ++i) max = std::max<double>(max, x[i]);
  if (std::isinf(max) && max < 0) return -1;
  double total = 0;
  for (size_t i = 0; i < n; ++i) total += MassOf(x[i], max);
  const double target = static_cast<double>(u) * total;
  double sum = 0;
  int32_t last = -1;
  for (size_t i = 0; i < n; ++i) {
    const double mass = MassOf(x[i], max);
    if (!(mass > 0)) continue;
    sum += mass;
    last = static_cast<int32_t>(i);
    if (sum > target) return last;
  }
  return last;
}

class RowSampleNode final : public Node {
 public:
  explicit RowSampleNode(const CompileContext& context)
      : x_(context.Input(operands::RowSample::x)),
        u_(context.Input(operands::RowSample::u)),
        settings_(context.Input(operands::RowSample::settings)),
        y_(context.Result()) {
    const auto n = static_cast<size_t>(x_.Last(context.MaxStep()));
    for (int worker = 0; worker < context.workers; ++worker) {
      memory_.emplace_back(context, n);
      kept_.push_back(reinterpret_cast<float*>(context.workspace.Allocate(n * sizeof(float))));
    }
  }
  [[nodiscard]] int64_t Items(const Step& step) const override { return y_.Rows(step); }
  void Run(const Step& step, int worker, int64_t begin, int64_t end) override {
    const auto n = static_cast<size_t>(x_.Last(step));
    const auto w = static_cast<size_t>(worker);
    for (int64_t row = begin; row < end; ++row) {
      y_.as<int32_t>()[row] =
          Draw(x_.as<const float>() + static_cast<size_t>(row) * n, n, u_.as<const float>()[row],
               settings_.as<const float>() + row * 5, memory_[w], kept_[w]);
    }
  }

 private:
  static int32_t Draw(const float* x, size_t n, float u, const float* settings,
                      const FilterMemory& memory, float* kept) {
    const float scale = settings[0], top_k = settings[1], top_p = settings[2];
    const float log_min_p = settings[3], typical_p = settings[4];
    for (size_t i = 0; i < n; ++i) kept[i] = std::isnan(x[i]) ? kBanned : x[i];
    if (scale == 0) {
      const float* best = std::max_element(kept, kept + n);
      return *best == kBanned ? -1 : static_cast<int32_t>(best - kept);
    }
    if (top_k > 0 && top_k < static_cast<float>(n)) {
      std::fill(kept + static_cast<size_t>(top_k), kept + n, kBanned);
    }
    if (typical_p < 1) FilterTypicalP(kept, n, typical_p, memory, kept);
    if (top_p < 1) FilterTopP(kept, n, top_p, memory, kept);
    if (log_min_p > kBanned) FilterMinP(kept, n, log_min_p, kept);
    for (size_t i = 0; i < n; ++i) kept[i] *= scale;
    return DrawColumn(kept, n, u);
  }

  View x_, u_, settings_, y_;
  std::vector<FilterMemory> memory_;  // by worker
  std::vector<float*> kept_;          // by worker: the logits of a row
};

class CategoricalNode final : public Node {
 public:
  explicit CategoricalNode(const CompileContext& context)
      : x_(context.Input(operands::Categorical::x)),
        u_(context.Input(operands::Categorical::u)),
        y_(context.Result()) {}
  [[nodiscard]] int64_t Items(const Step& step) const override { return y_.Rows(step); }
  void Run(const Step& step, int /*worker*/, int64_t begin, int64_t end) override {
    const auto n = static_cast<size_t>(x_.Last(step));
    for (int64_t row = begin; row < end; ++row) {
      y_.as<int32_t>()[row] = DrawColumn(x_.as<const float>() + static_cast<size_t>(row) * n, n,
                                         u_.as<const float>()[row]);
    }
  }

 private:
  View x_, u_, y_;
};

}  // namespace

const OpRow rows::kTopPMask = {RL_OP_top_p_mask, nullptr, AddNode<TopPMaskNode>};
const OpRow rows::kMinPMask = {RL_OP_min_p_mask, nullptr, AddNode<MinPMaskNode>};
const OpRow rows::kTypicalPMask = {RL_OP_typical_p_mask, nullptr, AddNode<TypicalPMaskNode>};
const OpRow rows::kRandomUniform = {RL_OP_random_uniform, nullptr, AddNode<RandomUniformNode>};
const OpRow rows::kCategorical = {RL_OP_categorical, nullptr, AddNode<CategoricalNode>};
const OpRow rows::kRowUniform = {RL_OP_row_uniform, nullptr, AddNode<RowUniformNode>};
const OpRow rows::kRowSample = {RL_OP_row_sample, nullptr, AddNode<RowSampleNode>};

}  // namespace rullama::cpu
