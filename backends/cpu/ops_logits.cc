// Ops that change single logits: penalties, biases, masks of tokens. Items are rows.
#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "backends/cpu/op_rows.h"

namespace rullama::cpu {
namespace {

// The logit of an excluded token.
constexpr float kBannedLogit = -std::numeric_limits<float>::infinity();

struct Penalty {
  float repeat, frequency, presence;
  int64_t last_n;
};

// The base of both kinds of penalties, which have their operands at the same positions.
class PenaltiesNode : public Node {
 public:
  // `most`: the largest last_n.
  PenaltiesNode(const CompileContext& context, int64_t most)
      : logits_(context.Input(operands::Penalties::logits)),
        history_(context.Input(operands::Penalties::history)),
        tokens_(context.Input(operands::Penalties::tokens)),
        q_pos_(context.Input(operands::Penalties::q_pos)),
        q_slot_(context.Input(operands::Penalties::q_slot)),
        kv_pos_(context.Input(operands::Penalties::kv_pos)),
        kv_slot_(context.Input(operands::Penalties::kv_slot)),
        past_(context.Input(operands::Penalties::past)),
        y_(context.Result()) {
    const auto capacity = static_cast<uint64_t>(most);
    for (int worker = 0; worker < context.workers; ++worker) {
      seen_.push_back(
          reinterpret_cast<int32_t*>(context.workspace.Allocate(capacity * sizeof(int32_t))));
    }
  }
  [[nodiscard]] int64_t Items(const Step& step) const override { return y_.Rows(step); }
  void Run(const Step& step, int worker, int64_t begin, int64_t end) final {
    const int64_t n = y_.Last(step);
    int32_t* seen = seen_[static_cast<size_t>(worker)];
    for (int64_t row = begin; row < end; ++row) {
      float* y = y_.as<float>() + row * n;
      std::memcpy(y, logits_.as<const float>() + row * n, static_cast<size_t>(n) * sizeof(float));
      const Penalty penalty = PenaltyOf(row);
      const int64_t count = Collect(step, row, penalty.last_n, seen);
      std::sort(seen, seen + count);
      for (int64_t i = 0; i < count;) {
        int64_t next = i;
        while (next < count && seen[next] == seen[i]) ++next;
        if (seen[i] >= 0 && seen[i] < n) Apply(penalty, next - i, y[seen[i]]);
        i = next;
      }
    }
  }

 protected:
  [[nodiscard]] virtual Penalty PenaltyOf(int64_t row) const = 0;

 private:
  // Writes the tokens at the last_n positions up to the row's own to `seen` and returns their
  // number.
  int64_t Collect(const Step& step, int64_t row, int64_t last_n, int32_t* seen) const {
    const int64_t pos = q_pos_.as<const int32_t>()[row];
    const int32_t slot = q_slot_.as<const int32_t>()[row];
    const int64_t past = past_.as<const int32_t>()[slot];
    const int64_t capacity = history_.Dim(1, step);
    const int64_t first = std::max<int64_t>(0, pos - last_n + 1);
    int64_t count = 0;
    for (int64_t p = std::max(first, past - capacity); p < std::min(past, pos + 1); ++p) {
      seen[count++] = history_.as<const int32_t>()[slot * capacity + p % capacity];
    }
    for (int64_t i = 0; i < tokens_.Rows(step) && count < last_n; ++i) {
      const int64_t p = kv_pos_.as<const int32_t>()[i];
      if (kv_slot_.as<const int32_t>()[i] == slot && p >= std::max(first, past) && p <= pos) {
        seen[count++] = tokens_.as<const int32_t>()[i];
      }
    }
    return count;
  }
  static void Apply(const Penalty& penalty, int64_t count, float& logit) {
    logit = logit > 0 ? logit / penalty.repeat : logit * penalty.repeat;
    logit -= static_cast<float>(count) * penalty.frequency + penalty.presence;
  }

  View logits_, history_, tokens_, q_pos_, q_slot_, kv_pos_, kv_slot_, past_, y_;
  std::vector<int32_t*> seen_;
};

class SharedPenaltiesNode final : public PenaltiesNode {
 public:
  explicit SharedPenaltiesNode(const CompileContext& context)
      : PenaltiesNode(context, context.attrs<rl_penalties_attrs>().last_n),
        attrs_(context.attrs<rl_penalties_attrs>()) {}

 private:
  [[nodiscard]] Penalty PenaltyOf(int64_t /*row*/) const override {
    return {attrs_.repeat, attrs_.frequency, attrs_.presence, attrs_.last_n};
  }

  rl_penalties_attrs attrs_;
};

class RowPenaltiesNode final : public PenaltiesNode {
 public:
  explicit RowPenaltiesNode(const CompileContext& context)
      : PenaltiesNode(context, CapacityOf(context)),
        capacity_(CapacityOf(context)),
        settings_(context.Input(operands::RowPenalties::settings)) {}

 private:
  static int64_t CapacityOf(const CompileContext& context) {
    return context.Input(operands::RowPenalties::history).Dim(1, context.MaxStep());
  }
  [[nodiscard]] Penalty PenaltyOf(int64_t row) const override {
    const float* settings = settings_.as<const float>() + row * 4;
    const auto last_n = static_cast<int64_t>(settings[3]);
    return {settings[0], settings[1], settings[2], std::clamp<int64_t>(last_n, 0, capacity_)};
  }

  int64_t capacity_;
  View settings_;
};

class RowBiasNode final : public Node {
 public:
  explicit RowBiasNode(const CompileContext& context)
      : logits_(context.Input(operands::RowBias::logits)),
        ids_(context.Input(operands::RowBias::ids)),
        bias_(context.Input(operands::RowBias::bias)),
        y_(context.Result()) {}
  [[nodiscard]] int64_t Items(const Step& step) const override { return y_.Rows(step); }
  void Run(const Step& step, int /*worker*/, int64_t begin, int64_t end) override {
    const int64_t n = y_.Last(step);
    const int64_t count = ids_.Last(step);
    for (int64_t row = begin; row < end; ++row) {
      float* y = y_.as<float>() + row * n;
      std::memcpy(y, logits_.as<const float>() + row * n, static_cast<size_t>(n) * sizeof(float));
      for (int64_t i = row * count; i < (row + 1) * count; ++i) {
        const int32_t id = ids_.as<const int32_t>()[i];
        if (id == -1) continue;
        if (id < 0 || id >= n) {
          Fail("row_bias: id " + std::to_string(id) + " is outside " + std::to_string(n) +
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

class TokenMaskNode final : public Node {
 public:
  explicit TokenMaskNode(const CompileContext& context)
      : logits_(context.Input(operands::TokenMask::logits)),
        bits_(context.Input(operands::TokenMask::bits)),
        y_(context.Result()) {}
  [[nodiscard]] int64_t Items(const Step& step) const override { return y_.Rows(step); }
  void Run(const Step& step, int /*worker*/, int64_t begin, int64_t end) override {
    const int64_t n = y_.Last(step);
    const int64_t words = bits_.Last(step);
    for (int64_t row = begin; row < end; ++row) {
      const float* x = logits_.as<const float>() + row * n;
      const uint32_t* bits = bits_.as<const uint32_t>() + row * words;
      float* y = y_.as<float>() + row * n;
      for (int64_t word = 0; word < words; ++word) {
        const int64_t first = word * 32;
        const int64_t last = std::min(first + 32, n);
        // Most words of a mask allow nothing or everything.
        if (bits[word] == 0) {
          std::fill(y + first, y + last, kBannedLogit);
          continue;
        }
        if (bits[word] == ~uint32_t{0}) {
          std::copy(x + first, x + last, y + first);
          continue;
        }
        for (int64_t i = first; i < last; ++i) {
          y[i] = (bits[word] >> (i - first) & 1) != 0 ? x[i] : kBannedLogit;
        }
      }
    }
  }

 private:
  View logits_, bits_, y_;
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

}  // namespace

const OpRow rows::kPenalties = {RL_OP_penalties, nullptr, AddNode<SharedPenaltiesNode>};
const OpRow rows::kBiasAdd = {RL_OP_bias_add, nullptr, AddNode<BiasAddNode>};
const OpRow rows::kTokenMask = {RL_OP_token_mask, nullptr, AddNode<TokenMaskNode>};
const OpRow rows::kRowBias = {RL_OP_row_bias, nullptr, AddNode<RowBiasNode>};
const OpRow rows::kRowPenalties = {RL_OP_row_penalties, nullptr, AddNode<RowPenaltiesNode>};

}  // namespace rullama::cpu
