#include <algorithm>

#include "samplers/steps.h"

namespace rullama::samplers {
namespace {

constexpr std::string_view kMaskInput = "sampler.rows.mask";  // i32[R, words], see token_mask

bool HasMask(const RowSampling& row) { return !row.mask.empty(); }

Status CheckMask(const RowSampling& row, int64_t vocabulary) {
  if (row.mask.empty() || std::ssize(row.mask) == MaskWords(vocabulary)) return OkStatus();
  return MakeError(ErrorKind::kUsage, "sampler.mask", "a mask has {} words, expected {}",
                   row.mask.size(), MaskWords(vocabulary));
}

ValueId AppendMask(const StepContext& context, ValueId logits) {
  const ValueId bits = context.Input(kMaskInput, DType::kI32, MaskWords(context.vocabulary));
  return context.builder.Add(ops::TokenMask{.logits = logits, .bits = bits}, "sampler.allowed");
}

void FillMask(std::span<const RowSampling> rows, int64_t vocabulary, InputBytes& inputs) {
  const auto words = static_cast<size_t>(MaskWords(vocabulary));
  const std::span<uint32_t> bits = inputs.Add(kMaskInput, rows.size() * words, ~uint32_t{0});
  for (size_t i = 0; i < rows.size(); ++i) {
    std::ranges::copy(rows[i].mask, bits.subspan(i * words).begin());
  }
}

}  // namespace

const Step kMask = {HasMask, CheckMask, AppendMask, FillMask};

}  // namespace rullama::samplers
