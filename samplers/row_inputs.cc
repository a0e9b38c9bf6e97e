#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "samplers/draw_inputs.h"
#include "samplers/row_chain.h"
#include "samplers/steps.h"

namespace rullama {
namespace {

using samplers::DrawPath;
using samplers::kDrawSettings;
using samplers::kKeyWords;

DrawPath PathOf(const RowSampling& row, int64_t vocabulary) {
  if (row.IsGreedy()) return DrawPath::kFew;
  const bool truncates = row.top_k > 0 && row.top_k < vocabulary;
  if (truncates) return row.top_k <= kMaxPlainTopK ? DrawPath::kFew : DrawPath::kSorted;
  return row.top_p < 1 ? DrawPath::kSorted : DrawPath::kAll;
}

// The settings as row_sample reads them.
std::array<float, kDrawSettings> DrawSettingsOf(const RowSampling& row) {
  const auto min_p = static_cast<float>(row.min_p);
  return {row.IsGreedy() ? 0.0F : static_cast<float>(1 / row.temperature),
          static_cast<float>(row.top_k), static_cast<float>(row.top_p),
          min_p > 0 ? std::log(min_p) : -std::numeric_limits<float>::infinity(),
          static_cast<float>(row.typical_p)};
}

// The key of the draw as row_uniform reads it.
std::array<int32_t, kKeyWords> KeyOf(const RowSampling& row) {
  return {static_cast<int32_t>(row.seed), static_cast<int32_t>(row.seed >> 32),
          static_cast<int32_t>(row.stream)};
}

}  // namespace

RowChainKind KindFor(const RowSampling& row, int64_t vocabulary) {
  if (PathOf(row, vocabulary) != DrawPath::kFew) return RowChainKind::kFull;
  const bool edited = std::ranges::any_of(
      samplers::kSteps, [&row](const samplers::Step* step) { return step->changes(row); });
  if (edited) return RowChainKind::kEdited;
  return row.IsGreedy() ? RowChainKind::kGreedy : RowChainKind::kPlain;
}

RowChainKind KindFor(std::span<const RowSampling> rows, int64_t vocabulary) {
  auto kind = RowChainKind::kGreedy;
  for (const RowSampling& row : rows) kind = std::max(kind, KindFor(row, vocabulary));
  return kind;
}

RowInputs::RowInputs(int64_t vocabulary) : vocabulary_(vocabulary) {}

Status RowInputs::Check(RowChainKind kind, const RowSampling& row) const {
  if (KindFor(row, vocabulary_) > kind) {
    return MakeError(ErrorKind::kRuntime, "sampler.kind",
                     "a row asks for more than this graph has; choose the graph with KindFor()");
  }
  for (const samplers::Step* step : samplers::kSteps) {
    if (step->check != nullptr) RL_RETURN_IF_ERROR(step->check(row, vocabulary_));
  }
  return OkStatus();
}

Status RowInputs::Set(RowChainKind kind, std::span<const RowSampling> rows) {
  for (const RowSampling& row : rows) RL_RETURN_IF_ERROR(Check(kind, row));
  inputs_.Clear();
  if (kind == RowChainKind::kGreedy) return OkStatus();
  inputs_.AddRows(samplers::kDrawSettingsInput, rows, DrawSettingsOf);
  inputs_.AddRows(kDrawKeyInput, rows, KeyOf);
  if (kind >= RowChainKind::kEdited) {
    for (const samplers::Step* step : samplers::kSteps) step->fill(rows, vocabulary_, inputs_);
  }
  if (kind == RowChainKind::kFull) {
    const auto path_of = [this](const RowSampling& row) {
      return std::array{static_cast<int32_t>(PathOf(row, vocabulary_))};
    };
    inputs_.AddRows(samplers::kPathInput, rows, path_of);
  }
  return OkStatus();
}

}  // namespace rullama
