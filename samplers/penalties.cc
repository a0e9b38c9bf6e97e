#include <array>

#include "samplers/steps.h"

namespace rullama::samplers {
namespace {

constexpr std::string_view kPenaltiesInput =
    "sampler.rows.penalties";  // f32[R, 4], see row_penalties
constexpr size_t kPenaltyColumns = 4;
// Larger than any context, and exact in f32.
constexpr float kWholeContext = 1 << 24;

bool HasPenalties(const RowSampling& row) {
  return row.repeat_last_n != 0 &&
         (row.repeat_penalty != 1 || row.frequency_penalty != 0 || row.presence_penalty != 0);
}

// The settings as row_penalties reads them.
std::array<float, kPenaltyColumns> PenaltiesOf(const RowSampling& row) {
  if (!HasPenalties(row)) return {1, 0, 0, 0};
  return {static_cast<float>(row.repeat_penalty), static_cast<float>(row.frequency_penalty),
          static_cast<float>(row.presence_penalty),
          row.repeat_last_n < 0 ? kWholeContext : static_cast<float>(row.repeat_last_n)};
}

ValueId AppendPenalties(const StepContext& context, ValueId logits) {
  const ValueId settings = context.Input(kPenaltiesInput, DType::kF32, kPenaltyColumns);
  return context.builder.Add(ops::WithRows(ops::RowPenalties{.logits = logits,
                                                             .history = context.history,
                                                             .tokens = context.inputs.tokens,
                                                             .settings = settings},
                                           context.inputs.rows),
                             "sampler.penalised");
}

void FillPenalties(std::span<const RowSampling> rows, int64_t /*vocabulary*/, InputBytes& inputs) {
  inputs.AddRows(kPenaltiesInput, rows, PenaltiesOf);
}

}  // namespace

const Step kPenalties = {HasPenalties, nullptr, AppendPenalties, FillPenalties};

}  // namespace rullama::samplers
