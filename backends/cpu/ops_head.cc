// linear_cross_entropy: a model's head and its loss.
#include <algorithm>
#include <memory>

#include "backends/cpu/kernels/training_kernels.h"
#include "backends/cpu/loss_targets.h"
#include "backends/cpu/matmul_nodes.h"
#include "backends/cpu/op_rows.h"

namespace rullama::cpu {
namespace {

// Rows whose logits exist at a time: 268 MB for a vocabulary of 262,144. With 64 rows, unpacking
// the weights for each chunk took as long as multiplying.
constexpr int64_t kChunk = 256;

// Turns logits before the soft-cap into losses, and into their derivative in place.
class LossNode final : public Node {
 public:
  LossNode(const CompileContext& context, const View& logits, const View& targets, const View& loss)
      : kernels_(context.kernels),
        training_(TrainingKernelsFor(context.kernels.isa)),
        cap_(context.attrs<rl_linear_cross_entropy_attrs>().cap),
        factor_(context.Input(operands::LinearCrossEntropy::factor)),
        logits_(logits),
        n_(logits.Last(context.MaxStep())),
        targets_(targets, n_),
        loss_(loss) {}
  [[nodiscard]] int64_t Items(const Step& step) const override { return logits_.Rows(step); }
  void Run(const Step& /*step*/, int /*worker*/, int64_t begin, int64_t end) override {
    const auto n = static_cast<size_t>(n_);
    for (int64_t row = begin; row < end; ++row) {
      float* z = logits_.as<float>() + row * n_;
      if (!targets_.Counts(row)) {
        loss_.as<float>()[row] = 0;
        std::fill_n(z, n_, 0.0f);
        continue;
      }
      const size_t target = targets_.Column(row);
      if (cap_ > 0) kernels_.softcap(z, n, cap_, z);
      loss_.as<float>()[row] = training_.cross_entropy(z, n, target);
      training_.cross_entropy_grad(z, n, target, *factor_.as<const float>(), cap_, z);
    }
  }

 private:
  const KernelTable& kernels_;
  const TrainingKernels& training_;
  float cap_;
  View factor_, logits_;
  int64_t n_;
  LossTargets targets_;
  View loss_;
};

// A matrix [rows of x, columns of logits] in scratch memory.
View LogitsOf(const View& x, const View& weight, std::byte* data) {
  View logits = x;
  logits.data = data;
  logits.dims[1] = weight.dims[0];
  return logits;
}

void CompileHead(const CompileContext& context) {
  using In = operands::LinearCrossEntropy;
  const View x = context.Input(In::x), weight = context.Input(In::weight);
  const int64_t max_rows = x.Rows(context.MaxStep());
  const auto most = static_cast<uint64_t>(std::min(kChunk, max_rows));
  const auto columns = static_cast<uint64_t>(weight.dims[0].constant);
  std::byte* memory = context.workspace.AllocateForOp(most * columns * sizeof(float));
  for (int64_t first = 0; first < max_rows; first += kChunk) {
    const View x_rows = x.RowRange(first, kChunk);
    const View logits = LogitsOf(x_rows, weight, memory);
    AddProduct(context, x_rows, weight, logits);
    context.nodes.Add(std::make_unique<LossNode>(context, logits,
                                                 context.Input(In::targets).RowRange(first, kChunk),
                                                 context.Result(0).RowRange(first, kChunk)));
    AddProductAsStored(context, logits, weight, context.Result(1).RowRange(first, kChunk));
  }
}

}  // namespace

const OpRow rows::kLinearCrossEntropy = {RL_OP_linear_cross_entropy, RefuseWeights, CompileHead};

}  // namespace rullama::cpu
