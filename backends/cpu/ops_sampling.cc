// Sampling ops. Items are rows; sums are float64 as in the reference.
#include <rullama/sdk/philox.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "backends/cpu/op_rows.h"

namespace rullama::cpu {
namespace {

// The logit of an excluded token.
constexpr float kBanned = -std::numeric_limits<float>::infinity();

class PenaltiesNode final : public Node {
 public:
  explicit PenaltiesNode(const CompileContext& context)
      : attrs_(context.attrs<rl_penalties_attrs>()),
        logits_(context.Input(operands::Penalties::logits)),
        history_(context.Input(operands::Penalties::history)),
        tokens_(context.Input(operands::Penalties::tokens)),
        q_pos_(context.Input(operands::Penalties::q_pos)),
        q_slot_(context.Input(operands::Penalties::q_slot)),
        kv_pos_(context.Input(operands::Penalties::kv_pos)),
        kv_slot_(context.Input(operands::Penalties::kv_slot)),
        past_(context.Input(operands::Penalties::past)),
        y_(context.Result()) {
    const auto capacity = static_cast<uint64_t>(attrs_.last_n);
    for (int worker = 0; worker < context.workers; ++worker) {
      seen_.push_back(
          reinterpret_cast<int32_t*>(context.workspace.Allocate(capacity * sizeof(int32_t))));
    }
  }
  [[nodiscard]] int64_t Items(const Step& step) const override { return y_.Rows(step); }
  void Run(const Step& step, int worker, int64_t begin, int64_t end) override {
    const int64_t n = y_.Last(step);
    int32_t* seen = seen_[static_cast<size_t>(worker)];
    for (int64_t row = begin; row < end; ++row) {
      float* y = y_.as<float>() + row * n;
      std::memcpy(y, logits_.as<const float>() + row * n, static_cast<size_t>(n) * sizeof(float));
      const int64_t count = Collect(step, row, seen);
      std::sort(seen, seen + count);
      for (int64_t i = 0; i < count;) {
        int64_t next = i;
        while (next < count && seen[next] == seen[i]) ++next;
        if (seen[i] >= 0 && seen[i] < n) Apply(y[seen[i]], next - i);
        i = next;
      }
    }
  }

 private:
  // Writes the tokens at the last_n positions up to the row's own to `seen` and returns their
  // number.
  int64_t Collect(const Step& step, int64_t row, int32_t* seen) const {
    const int64_t pos = q_pos_.as<const int32_t>()[row];
    const int32_t slot = q_slot_.as<const int32_t>()[row];
    const int64_t past = past_.as<const int32_t>()[slot];
    const int64_t capacity = history_.Dim(1, step);
    const int64_t first = std::max<int64_t>(0, pos - attrs_.last_n + 1);
    int64_t count = 0;
    for (int64_t p = std::max(first, past - capacity); p < std::min(past, pos + 1); ++p) {
      seen[count++] = history_.as<const int32_t>()[slot * capacity + p % capacity];
    }
    for (int64_t i = 0; i < tokens_.Rows(step) && count < attrs_.last_n; ++i) {
      const int64_t p = kv_pos_.as<const int32_t>()[i];
      if (kv_slot_.as<const int32_t>()[i] == slot && p >= std::max(first, past) && p <= pos) {
        seen[count++] = tokens_.as<const int32_t>()[i];
      }
    }
    return count;
  }
  void Apply(float& logit, int64_t count) const {
    logit = logit > 0 ? logit / attrs_.repeat : logit * attrs_.repeat;
    logit -= static_cast<float>(count) * attrs_.frequency + attrs_.presence;
  }

  rl_penalties_attrs attrs_;
  View logits_, history_, tokens_, q_pos_, q_slot_, kv_pos_, kv_slot_, past_, y_;
  std::vector<int32_t*> seen_;
};

class BiasAddNode final : public Node {
 public:
  explicit BiasAddNode(const CompileContext& context)
      : logits_(context.Input(operands::BiasAdd::logits)),
        ids_(context.Input(operands::BiasAdd::ids)),
        bias_(context.Input(operands::BiasAdd::bias)),
        y_(context.Result()) {}
  [[nodiscard]] int64_t Items(const Step& step) const override { return y_.Rows(step); }
  void Run(const Step& step, int /*worker*/, int64_t begin, int64_t end) override {
    const int64_t n = y_.Last(step);
    for (int64_t row = begin; row < end; ++row) {
      float* y = y_.as<float>() + row * n;
      std::memcpy(y, logits_.as<const float>() + row * n, static_cast<size_t>(n) * sizeof(float));
      for (int64_t i = 0; i < ids_.Rows(step); ++i) {
        const int32_t id = ids_.as<const int32_t>()[i];
        if (id < 0 || id >= n) {
          Fail("bias_add: id " + std::to_string(id) + " is outside " + std::to_string(n) +
               " columns");
          return;
        }
        y[id] += bias_.as<const float>()[i];
      }
    }
  }

 private:
  View logits_, ids_, bias_, y_;
};

// Sampling filters: y = x for the tokens that are kept, -inf for the others.
class MaskNode : public Node {
 public:
  MaskNode(const CompileContext& context, uint32_t x, float p)
      : p_(p), x_(context.Input(x)), y_(context.Result()) {
    const auto n = static_cast<size_t>(x_.Last(context.MaxStep()));
    for (int worker = 0; worker < context.workers; ++worker) {
      probability_.push_back(
          reinterpret_cast<double*>(context.workspace.Allocate(n * sizeof(double))));
      order_.push_back(reinterpret_cast<int32_t*>(context.workspace.Allocate(n * sizeof(int32_t))));
    }
  }
  [[nodiscard]] int64_t Items(const Step& step) const override { return y_.Rows(step); }
  void Run(const Step& step, int worker, int64_t begin, int64_t end) final {
    const auto n = static_cast<size_t>(y_.Last(step));
    const auto w = static_cast<size_t>(worker);
    for (int64_t row = begin; row < end; ++row) {
      const size_t at = static_cast<size_t>(row) * n;
      Filter(x_.as<const float>() + at, n, probability_[w], order_[w], y_.as<float>() + at);
    }
  }

 protected:
  virtual void Filter(const float* x, size_t n, double* probability, int32_t* order, float* y) = 0;

  // Softmax in float64; zeros if every x is -inf.
  static void Softmax(const float* x, size_t n, double* probability) {
    double max = -std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < n; ++i) max = std::max<double>(max, x[i]);
    double sum = 0;
    for (size_t i = 0; i < n; ++i) {
      probability[i] = std::isinf(max) ? 0.0 : std::exp(static_cast<double>(x[i]) - max);
      sum += probability[i];
    }
    for (size_t i = 0; i < n && sum > 0; ++i) probability[i] /= sum;
  }

  float p_;

 private:
  View x_, y_;
  std::vector<double*> probability_;
  std::vector<int32_t*> order_;
};

class TopPMaskNode final : public MaskNode {
 public:
  explicit TopPMaskNode(const CompileContext& context)
      : MaskNode(context, operands::TopPMask::x, context.attrs<rl_top_p_mask_attrs>().p) {}

 private:
  void Filter(const float* x, size_t n, double* probability, int32_t* /*order*/,
              float* y) override {
    Softmax(x, n, probability);
    double before = 0;
    for (size_t i = 0; i < n; ++i) {
      y[i] = i == 0 || before < p_ ? x[i] : kBanned;
      before += probability[i];
    }
  }
};

class MinPMaskNode final : public MaskNode {
 public:
  explicit MinPMaskNode(const CompileContext& context)
      : MaskNode(context, operands::MinPMask::x, context.attrs<rl_min_p_mask_attrs>().p) {}

 private:
  void Filter(const float* x, size_t n, double* /*probability*/, int32_t* /*order*/,
              float* y) override {
    const float limit = *std::max_element(x, x + n) + std::log(p_);
    for (size_t i = 0; i < n; ++i) y[i] = x[i] >= limit ? x[i] : kBanned;
  }
};

class TypicalPMaskNode final : public MaskNode {
 public:
  explicit TypicalPMaskNode(const CompileContext& context)
      : MaskNode(context, operands::TypicalPMask::x, context.attrs<rl_typical_p_mask_attrs>().p) {}

 private:
  void Filter(const float* x, size_t n, double* probability, int32_t* order, float* y) override {
    Softmax(x, n, probability);
    double entropy = 0;
    for (size_t i = 0; i < n; ++i) {
      if (probability[i] > 0) entropy -= probability[i] * std::log(probability[i]);
    }
    const auto distance = [&](int32_t i) {
      const double p = probability[i];
      return p > 0 ? std::fabs(-std::log(p) - entropy) : std::numeric_limits<double>::infinity();
    };
    std::iota(order, order + n, 0);
    std::sort(order, order + n, [&](int32_t a, int32_t b) {
      const double da = distance(a);
      const double db = distance(b);
      return da != db ? da < db : a < b;
    });
    std::fill_n(y, n, kBanned);
    double before = 0;
    for (size_t i = 0; i < n && (i == 0 || before < p_); ++i) {
      y[order[i]] = x[order[i]];
      before += probability[order[i]];
    }
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
      y_.as<int32_t>()[row] =
          Draw(x_.as<const float>() + static_cast<size_t>(row) * n, n, u_.as<const float>()[row]);
    }
  }

 private:
  // The first token at which the cumulative mass exceeds u times the total; -1 if every x is -inf.
  static int32_t Draw(const float* x, size_t n, float u) {
    double max = -std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < n; ++i) max = std::max<double>(max, x[i]);
    if (std::isinf(max) && max < 0) return -1;
    double total = 0;
    for (size_t i = 0; i < n; ++i) total += Mass(x[i], max);
    const double target = static_cast<double>(u) * total;
    double sum = 0;
    int32_t last = -1;
    for (size_t i = 0; i < n; ++i) {
      const double mass = Mass(x[i], max);
      if (!(mass > 0)) continue;
      sum += mass;
      last = static_cast<int32_t>(i);
      if (sum > target) return last;
    }
    return last;
  }
  static double Mass(float x, double max) { return std::exp(static_cast<double>(x) - max); }

  View x_, u_, y_;
};

}  // namespace

const OpRow rows::kPenalties = {RL_OP_penalties, nullptr, AddNode<PenaltiesNode>};
const OpRow rows::kBiasAdd = {RL_OP_bias_add, nullptr, AddNode<BiasAddNode>};
const OpRow rows::kTopPMask = {RL_OP_top_p_mask, nullptr, AddNode<TopPMaskNode>};
const OpRow rows::kMinPMask = {RL_OP_min_p_mask, nullptr, AddNode<MinPMaskNode>};
const OpRow rows::kTypicalPMask = {RL_OP_typical_p_mask, nullptr, AddNode<TypicalPMaskNode>};
const OpRow rows::kRandomUniform = {RL_OP_random_uniform, nullptr, AddNode<RandomUniformNode>};
const OpRow rows::kCategorical = {RL_OP_categorical, nullptr, AddNode<CategoricalNode>};

}  // namespace rullama::cpu
