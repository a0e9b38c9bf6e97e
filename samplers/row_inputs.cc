#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "samplers/row_chain.h"
#include "samplers/row_input_names.h"

namespace rullama {
namespace {

using row_inputs::kBias;
using row_inputs::kBiasIds;
using row_inputs::kDrawSettings;
using row_inputs::kMask;
using row_inputs::kPath;
using row_inputs::kPenalties;
using row_inputs::kPenaltySettings;
using row_inputs::kSettings;
using row_inputs::Path;

// Larger than any context, and exact in f32.
constexpr float kWholeContext = 1 << 24;

Path PathOf(const RowSampling& row, int64_t vocabulary) {
  if (row.IsGreedy()) return Path::kFew;
  const bool truncates = row.top_k > 0 && row.top_k < vocabulary;
  if (truncates) return row.top_k <= kMaxPlainTopK ? Path::kFew : Path::kSorted;
  return row.top_p < 1 ? Path::kSorted : Path::kAll;
}

// The settings as row_sample reads them.
std::array<float, kDrawSettings> DrawSettingsOf(const RowSampling& row) {
  const auto min_p = static_cast<float>(row.min_p);
  return {row.IsGreedy() ? 0.0F : static_cast<float>(1 / row.temperature),
          static_cast<float>(row.top_k), static_cast<float>(row.top_p),
          min_p > 0 ? std::log(min_p) : -std::numeric_limits<float>::infinity(),
          static_cast<float>(row.typical_p)};
}

// The settings as row_penalties reads them.
std::array<float, kPenaltySettings> PenaltiesOf(const RowSampling& row) {
  if (!row.HasPenalties()) return {1, 0, 0, 0};
  return {static_cast<float>(row.repeat_penalty), static_cast<float>(row.frequency_penalty),
          static_cast<float>(row.presence_penalty),
          row.repeat_last_n < 0 ? kWholeContext : static_cast<float>(row.repeat_last_n)};
}

template <typename T, size_t kCount>
void Append(const std::array<T, kCount>& values, std::vector<T>& all) {
  all.insert(all.end(), values.begin(), values.end());
}

}  // namespace

RowChainKind KindFor(const RowSampling& row, int64_t vocabulary) {
  if (PathOf(row, vocabulary) != Path::kFew) return RowChainKind::kFull;
  const bool edited = !row.mask.empty() || !row.bias.empty() || row.HasPenalties();
  if (edited) return RowChainKind::kEdited;
  return row.IsGreedy() ? RowChainKind::kGreedy : RowChainKind::kPlain;
}

RowChainKind KindFor(std::span<const RowSampling> rows, int64_t vocabulary) {
  auto kind = RowChainKind::kGreedy;
  for (const RowSampling& row : rows) kind = std::max(kind, KindFor(row, vocabulary));
  return kind;
}

RowInputs::RowInputs(int64_t vocabulary) : vocabulary_(vocabulary) {}

void RowInputs::AddInput(std::string_view name, std::span<const std::byte> bytes) {
  inputs_[input_count_++] = {name, bytes};
}

Status RowInputs::Check(RowChainKind kind, const RowSampling& row) const {
  if (KindFor(row, vocabulary_) > kind) {
    return MakeError(ErrorKind::kRuntime, "sampler.kind",
                     "a row asks for more than this graph has; choose the graph with KindFor()");
  }
  if (!row.mask.empty() && std::ssize(row.mask) != MaskWords(vocabulary_)) {
    return MakeError(ErrorKind::kUsage, "sampler.mask", "a mask has {} words, expected {}",
                     row.mask.size(), MaskWords(vocabulary_));
  }
  if (std::ssize(row.bias) > kMaxRowBiases) {
    return MakeError(ErrorKind::kUsage, "sampler.logit_bias",
                     "logit_bias has {} entries, expected at most {}", row.bias.size(),
                     kMaxRowBiases);
  }
  for (const TokenBias& bias : row.bias) {
    if (bias.token >= 0 && bias.token < vocabulary_) continue;
    return MakeError(ErrorKind::kUsage, "sampler.logit_bias",
                     "logit_bias names token {}, expected 0 to {}", bias.token, vocabulary_ - 1);
  }
  return OkStatus();
}

Status RowInputs::Set(RowChainKind kind, std::span<const RowSampling> rows) {
  for (const RowSampling& row : rows) RL_RETURN_IF_ERROR(Check(kind, row));
  input_count_ = 0;
  if (kind == RowChainKind::kGreedy) return OkStatus();
  settings_.clear();
  key_.clear();
  path_.clear();
  for (const RowSampling& row : rows) {
    Append(DrawSettingsOf(row), settings_);
    key_.push_back(static_cast<int32_t>(row.seed));
    key_.push_back(static_cast<int32_t>(row.seed >> 32));
    key_.push_back(static_cast<int32_t>(row.stream));
    path_.push_back(static_cast<int32_t>(PathOf(row, vocabulary_)));
  }
  AddInput(kSettings, std::as_bytes(std::span(settings_)));
  AddInput(kDrawKeyInput, std::as_bytes(std::span(key_)));
  if (kind >= RowChainKind::kEdited) SetEdits(rows);
  if (kind == RowChainKind::kFull) AddInput(kPath, std::as_bytes(std::span(path_)));
  return OkStatus();
}

void RowInputs::SetEdits(std::span<const RowSampling> rows) {
  const auto words = static_cast<size_t>(MaskWords(vocabulary_));
  constexpr auto kBiases = static_cast<size_t>(kMaxRowBiases);
  mask_.assign(rows.size() * words, ~uint32_t{0});
  bias_ids_.assign(rows.size() * kBiases, -1);
  bias_.assign(rows.size() * kBiases, 0);
  penalties_.clear();
  for (size_t i = 0; i < rows.size(); ++i) {
    std::ranges::copy(rows[i].mask, mask_.begin() + static_cast<ptrdiff_t>(i * words));
    for (size_t k = 0; k < rows[i].bias.size(); ++k) {
      bias_ids_[i * kBiases + k] = rows[i].bias[k].token;
      bias_[i * kBiases + k] = rows[i].bias[k].bias;
    }
    Append(PenaltiesOf(rows[i]), penalties_);
  }
  AddInput(kMask, std::as_bytes(std::span(mask_)));
  AddInput(kBiasIds, std::as_bytes(std::span(bias_ids_)));
  AddInput(kBias, std::as_bytes(std::span(bias_)));
  AddInput(kPenalties, std::as_bytes(std::span(penalties_)));
}

}  // namespace rullama
