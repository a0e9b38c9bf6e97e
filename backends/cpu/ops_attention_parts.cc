// Attention as two ops: scores, then (after softmax) the weighted sum of values.
#include <algorithm>
#include <limits>
#include <vector>

#include "backends/cpu/attention_keys.h"
#include "backends/cpu/kernels/decode_row.h"
#include "backends/cpu/op_rows.h"

namespace rullama::cpu {
namespace {

// The heads of keys or values in float32, each worker its own one at a time.
class DecodedHeads {
 public:
  DecodedHeads(const CompileContext& context, int64_t dim) : dim_(static_cast<size_t>(dim)) {
    for (int worker = 0; worker < context.workers; ++worker) {
      heads_.push_back(
          reinterpret_cast<float*>(context.workspace.AllocateForOp(dim_ * sizeof(float))));
    }
  }
  // The dim values of `rows` from element `first` on; valid until the worker's next call.
  [[nodiscard]] const float* Of(const View& rows, int64_t first, int worker) const {
    const DTypeInfo& info = InfoOf(rows.dtype);
    const size_t block = static_cast<size_t>(first) / info.block_elements;
    float* head = heads_[static_cast<size_t>(worker)];
    DecodeRow(rows.dtype, rows.data + block * info.block_bytes, dim_, head);
    return head;
  }

 private:
  size_t dim_;
  std::vector<float*> heads_;
};

// y[row][head] = scale * q . k over the cache rows of the slot, then the fresh rows; -inf where
// masked.
class AttentionScoresNode final : public Node {
 public:
  explicit AttentionScoresNode(const CompileContext& context)
      : q_(context.Input(operands::AttentionScores::q)),
        k_new_(context.Input(operands::AttentionScores::k_new)),
        k_state_(context.Input(operands::AttentionScores::k_state)),
        rows_{context.Input(operands::AttentionScores::q_pos),
              context.Input(operands::AttentionScores::q_slot),
              context.Input(operands::AttentionScores::kv_pos),
              context.Input(operands::AttentionScores::kv_slot),
              context.Input(operands::AttentionScores::past),
              context.Input(operands::AttentionScores::q_end),
              context.attrs<rl_attention_scores_attrs>().mask,
              context.attrs<rl_attention_scores_attrs>().window},
        scale_(context.attrs<rl_attention_scores_attrs>().scale),
        y_(context.Result()),
        keys_(context, q_.Last(context.MaxStep())) {}
  [[nodiscard]] int64_t Items(const Step& step) const override { return q_.Rows(step); }
  void Run(const Step& step, int worker, int64_t begin, int64_t end) override {
    const int64_t heads = q_.Dim(1, step);
    const int64_t columns = y_.Last(step);
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t head = 0; head < heads; ++head) {
        float* y = y_.as<float>() + (row * heads + head) * columns;
        std::fill_n(y, columns, -std::numeric_limits<float>::infinity());
        ScoreState(step, worker, row, head, y);
        ScoreFresh(step, worker, row, head, y + CapacityOf(k_state_, step));
      }
    }
  }

 private:
  [[nodiscard]] float Score(const Step& step, int worker, int64_t row, int64_t head,
                            const View& keys, int64_t key_row) const {
    const int64_t heads = q_.Dim(1, step);
    const int64_t kv_heads = k_new_.Dim(1, step);
    const int64_t dim = q_.Dim(2, step);
    const float* q = q_.as<const float>() + (row * heads + head) * dim;
    const int64_t at = (key_row * kv_heads + head / (heads / kv_heads)) * dim;
    const float* k = keys_.Of(keys, at, worker);
    float sum = 0;
    for (int64_t i = 0; i < dim; ++i) sum += q[i] * k[i];
    return sum * scale_;
  }
  void ScoreState(const Step& step, int worker, int64_t row, int64_t head, float* y) const {
    const int64_t slot = rows_.q_slot.as<const int32_t>()[row];
    const int64_t past = rows_.Past(slot);
    const int64_t capacity = CapacityOf(k_state_, step);
    const auto [first, last] = rows_.Visible(row);
    for (int64_t p = std::max({first, past - capacity, int64_t{0}}); p < past && p <= last; ++p) {
      y[p % capacity] = Score(step, worker, row, head, k_state_, slot * capacity + p % capacity);
    }
  }
  void ScoreFresh(const Step& step, int worker, int64_t row, int64_t head, float* y) const {
    const auto [first, last] = rows_.Visible(row);
    const bool canvas = rows_.mask == RL_MASK_CANVAS;
    for (int64_t i = 0; i < k_new_.Rows(step); ++i) {
      if (rows_.kv_slot.as<const int32_t>()[i] != rows_.q_slot.as<const int32_t>()[row]) continue;
      const int64_t p = rows_.kv_pos.as<const int32_t>()[i];
      if (canvas || (p >= first && p <= last)) y[i] = Score(step, worker, row, head, k_new_, i);
    }
  }

  View q_, k_new_, k_state_;
  AttentionRows rows_;
  float scale_;
  View y_;
  DecodedHeads keys_;
};

// y[row][head] = sum over c of p[c] * v[c], over the cache rows of the slot, then the fresh rows.
class AttentionValuesNode final : public Node {
 public:
  explicit AttentionValuesNode(const CompileContext& context)
      : p_(context.Input(operands::AttentionMix::probability)),
        v_new_(context.Input(operands::AttentionMix::v_new)),
        v_state_(context.Input(operands::AttentionMix::v_state)),
        q_slot_(context.Input(operands::AttentionMix::q_slot)),
        y_(context.Result()),
        values_(context, y_.Last(context.MaxStep())) {}
  [[nodiscard]] int64_t Items(const Step& step) const override { return p_.Rows(step); }
  void Run(const Step& step, int worker, int64_t begin, int64_t end) override {
    const int64_t heads = p_.Dim(1, step);
    const int64_t kv_heads = v_new_.Dim(1, step);
    const int64_t dim = y_.Last(step);
    const int64_t capacity = CapacityOf(v_state_, step);
    const int64_t columns = p_.Last(step);
    for (int64_t row = begin; row < end; ++row) {
      const int64_t slot = q_slot_.as<const int32_t>()[row];
      for (int64_t head = 0; head < heads; ++head) {
        float* y = y_.as<float>() + (row * heads + head) * dim;
        const float* p = p_.as<const float>() + (row * heads + head) * columns;
        std::fill_n(y, dim, 0.0f);
        for (int64_t c = 0; c < columns; ++c) {
          if (p[c] == 0) continue;
          const bool fresh = c >= capacity;
          const View& values = fresh ? v_new_ : v_state_;
          const int64_t value_row = fresh ? c - capacity : slot * capacity + c;
          const int64_t at = (value_row * kv_heads + head / (heads / kv_heads)) * dim;
          const float* v = values_.Of(values, at, worker);
          for (int64_t i = 0; i < dim; ++i) y[i] += p[c] * v[i];
        }
      }
    }
  }

 private:
  View p_, v_new_, v_state_, q_slot_, y_;
  DecodedHeads values_;
};

}  // namespace

const OpRow rows::kAttentionScores = {RL_OP_attention_scores, nullptr,
                                      AddNode<AttentionScoresNode>};
const OpRow rows::kAttentionMix = {RL_OP_attention_mix, nullptr, AddNode<AttentionValuesNode>};

}  // namespace rullama::cpu
