// Ops of block diffusion: the entropy of rows of logits and the acceptance of rows by entropy.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "backends/cpu/op_rows.h"

namespace rullama::cpu {
namespace {

class EntropyNode final : public Node {
 public:
  explicit EntropyNode(const CompileContext& context)
      : kernels_(context.kernels), x_(context.Input(operands::Entropy::x)), y_(context.Result()) {
    const auto n = static_cast<size_t>(x_.Last(context.MaxStep()));
    for (int worker = 0; worker < context.workers; ++worker) {
      p_.push_back(reinterpret_cast<float*>(context.workspace.Allocate(n * sizeof(float))));
    }
  }
  [[nodiscard]] int64_t Items(const Step& step) const override { return x_.Rows(step); }
  void Run(const Step& step, int worker, int64_t begin, int64_t end) override {
    const auto n = static_cast<size_t>(x_.Last(step));
    float* p = p_[static_cast<size_t>(worker)];
    for (int64_t row = begin; row < end; ++row) {
      kernels_.softmax(x_.as<const float>() + static_cast<size_t>(row) * n, n, p);
      double entropy = 0;  // float64: a vocabulary has 262,144 terms
      for (size_t i = 0; i < n; ++i) {
        if (p[i] != 0) entropy -= static_cast<double>(p[i]) * std::log(static_cast<double>(p[i]));
      }
      y_.as<float>()[row] = static_cast<float>(entropy);
    }
  }

 private:
  const KernelTable& kernels_;
  View x_, y_;
  std::vector<float*> p_;  // per worker: the probabilities of a row
};

// y = 1 for the rows of lowest entropy: a row is accepted while the sum of the entropies before it
// is at most `bound`. NaN sorts last and is never accepted.
class EntropyAcceptNode final : public Node {
 public:
  explicit EntropyAcceptNode(const CompileContext& context)
      : bound_(context.attrs<rl_entropy_accept_attrs>().bound),
        entropy_(context.Input(operands::EntropyAccept::entropy)),
        y_(context.Result()),
        order_(reinterpret_cast<int32_t*>(context.workspace.Allocate(
            static_cast<uint64_t>(entropy_.Rows(context.MaxStep())) * sizeof(int32_t)))) {}
  [[nodiscard]] int64_t Items(const Step& step) const override { return y_.Rows(step) > 0 ? 1 : 0; }
  void Run(const Step& step, int /*worker*/, int64_t /*begin*/, int64_t /*end*/) override {
    const auto* entropy = entropy_.as<const float>();
    const int64_t rows = y_.Rows(step);
    const auto key = [&](int32_t row) {
      return std::isnan(entropy[row]) ? std::numeric_limits<float>::infinity() : entropy[row];
    };
    std::iota(order_, order_ + rows, 0);
    std::sort(order_, order_ + rows,
              [&](int32_t a, int32_t b) { return key(a) != key(b) ? key(a) < key(b) : a < b; });
    double before = 0;
    for (int64_t i = 0; i < rows; ++i) {
      const float value = entropy[order_[i]];
      y_.as<float>()[order_[i]] = before <= bound_ && !std::isnan(value) ? 1.0f : 0.0f;
      before += value;
    }
  }

 private:
  double bound_;
  View entropy_, y_;
  int32_t* order_;
};

}  // namespace

const OpRow rows::kEntropy = {RL_OP_entropy, nullptr, AddNode<EntropyNode>};
const OpRow rows::kEntropyAccept = {RL_OP_entropy_accept, nullptr, AddNode<EntropyAcceptNode>};

}  // namespace rullama::cpu
