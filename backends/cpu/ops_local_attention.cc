// Attention over the last rows, with a key for each distance.
#include <algorithm>
#include <vector>

#include "backends/cpu/op_rows.h"

namespace rullama::cpu {
namespace {

// Items are rows.
class LocalAttentionNode final : public Node {
 public:
  explicit LocalAttentionNode(const CompileContext& context)
      : kernels_(context.kernels),
        cap_(context.attrs<rl_local_attention_attrs>().cap),
        q_(context.Input(operands::LocalAttention::q)),
        k_(context.Input(operands::LocalAttention::k)),
        v_(context.Input(operands::LocalAttention::v)),
        rel_(context.Input(operands::LocalAttention::rel)),
        y_(context.Result()) {
    const size_t bytes = rel_.Count(0, context.MaxStep()) * sizeof(float);
    for (int worker = 0; worker < context.workers; ++worker) {
      scores_.push_back(reinterpret_cast<float*>(context.workspace.Allocate(bytes)));
    }
  }
  [[nodiscard]] int64_t Items(const Step& step) const override { return y_.Rows(step); }
  void Run(const Step& step, int worker, int64_t begin, int64_t end) override {
    const int64_t heads = q_.Dim(1, step);
    for (int64_t row = begin; row < end; ++row) {
      const int64_t seen = std::min(row + 1, rel_.Dim(0, step));
      for (int64_t head = 0; head < heads; ++head) {
        RunHead(step, scores_[static_cast<size_t>(worker)], row, head, seen);
      }
    }
  }

 private:
  // One head of a row, which sees its own key and the `seen` - 1 keys before it.
  void RunHead(const Step& step, float* scores, int64_t row, int64_t head, int64_t seen) const {
    const auto dim = q_.Count(2, step);
    const int64_t stride = q_.RowElements(step);
    const int64_t offset = head * static_cast<int64_t>(dim);
    const float* q = q_.as<const float>() + row * stride + offset;
    for (int64_t distance = 0; distance < seen; ++distance) {
      const float* k = k_.as<const float>() + (row - distance) * stride + offset;
      const float* rel = rel_.as<const float>() + distance * stride + offset;
      scores[distance] = kernels_.dot(q, k, dim) + kernels_.dot(q, rel, dim);
    }
    const auto count = static_cast<size_t>(seen);
    if (cap_ > 0) kernels_.softcap(scores, count, cap_, scores);
    kernels_.softmax(scores, count, scores);
    float* y = y_.as<float>() + row * stride + offset;
    std::fill_n(y, dim, 0.0f);
    for (int64_t distance = 0; distance < seen; ++distance) {
      kernels_.axpy(scores[distance], v_.as<const float>() + (row - distance) * stride + offset,
                    dim, y);
    }
  }

  const KernelTable& kernels_;
  float cap_;
  View q_, k_, v_, rel_, y_;
  std::vector<float*> scores_;  // of each worker, for one head of a row
};

}  // namespace

const OpRow rows::kLocalAttention = {RL_OP_local_attention, nullptr, AddNode<LocalAttentionNode>};

}  // namespace rullama::cpu
