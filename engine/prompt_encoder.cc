#include "engine/prompt_encoder.h"

#include <utility>

#include "core/base/check.h"

namespace rullama {

PromptEncoder::PromptEncoder(std::vector<PlacedMedium> media, std::vector<SoftRows> rows)
    : media_(std::move(media)), rows_(std::move(rows)), soft_(media_.size()) {
  RL_CHECK(rows_.size() == media_.size());
}

std::optional<size_t> PromptEncoder::Missing(int64_t first, int64_t end) const {
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (rows_[i].end() > first && rows_[i].first < end && !soft_[i]) return i;
  }
  return std::nullopt;
}

void PromptEncoder::Take(size_t index, std::shared_ptr<const SoftTokens> soft) {
  rows_[index].values = soft->values;
  soft_[index] = std::move(soft);
  media_[index].medium.reset();
}

void PromptEncoder::Drop(int64_t end) {
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (rows_[i].end() > end) continue;
    media_[i].medium.reset();
    soft_[i].reset();
    rows_[i].values = {};
  }
}

}  // namespace rullama
