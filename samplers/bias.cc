#include "samplers/steps.h"

namespace rullama::samplers {
namespace {

constexpr std::string_view kIdsInput = "sampler.rows.bias_ids";  // i32[R, n], see row_bias
constexpr std::string_view kBiasInput = "sampler.rows.bias";     // f32[R, n]

bool HasBias(const RowSampling& row) { return !row.bias.empty(); }

Status CheckBias(const RowSampling& row, int64_t vocabulary) {
  if (std::ssize(row.bias) > kMaxRowBiases) {
    return MakeError(ErrorKind::kUsage, "sampler.logit_bias",
                     "a row has {} biases and banned tokens, expected at most {}", row.bias.size(),
                     kMaxRowBiases);
  }
  for (const TokenBias& bias : row.bias) {
    if (bias.token >= 0 && bias.token < vocabulary) continue;
    return MakeError(ErrorKind::kUsage, "sampler.logit_bias",
                     "logit_bias names token {}, expected 0 to {}", bias.token, vocabulary - 1);
  }
  return OkStatus();
}

ValueId AppendBias(const StepContext& context, ValueId logits) {
  const ValueId ids = context.Input(kIdsInput, DType::kI32, kMaxRowBiases);
  const ValueId bias = context.Input(kBiasInput, DType::kF32, kMaxRowBiases);
  return context.builder.Add(ops::RowBias{.logits = logits, .ids = ids, .bias = bias},
                             "sampler.biased");
}

void FillBias(std::span<const RowSampling> rows, int64_t /*vocabulary*/, InputBytes& inputs) {
  constexpr auto kColumns = static_cast<size_t>(kMaxRowBiases);
  const std::span<int32_t> ids = inputs.Add(kIdsInput, rows.size() * kColumns, int32_t{-1});
  const std::span<float> bias = inputs.Add(kBiasInput, rows.size() * kColumns, 0.0F);
  for (size_t i = 0; i < rows.size(); ++i) {
    for (size_t k = 0; k < rows[i].bias.size(); ++k) {
      ids[i * kColumns + k] = rows[i].bias[k].token;
      bias[i * kColumns + k] = rows[i].bias[k].bias;
    }
  }
}

}  // namespace

const Step kBias = {HasBias, CheckBias, AppendBias, FillBias};

}  // namespace rullama::samplers
