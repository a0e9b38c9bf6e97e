#include "engine/prompt_encoder.h"

#include <utility>

#include "core/base/check.h"

namespace rullama {

PromptEncoder::PromptEncoder(std::vector<PlacedMedium> media, std::vector<SoftRows> rows)
    : media_(std::move(media)), rows_(std::move(rows)), soft_(media_.size()) {
  RL_CHECK(rows_.size() == media_.size());
}

Result<bool> PromptEncoder::Encode(MediaEncoder& encoder, int64_t first, int64_t end) {
  bool any = false;
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (rows_[i].end() <= first || rows_[i].first >= end) continue;
    any = true;
    if (soft_[i].tokens > 0) continue;
    RL_CHECK(media_[i].medium != nullptr);
    RL_ASSIGN_OR_RETURN(soft_[i], encoder.Encode(*media_[i].medium));
    rows_[i].values = soft_[i].values;
    media_[i].medium.reset();
  }
  return any;
}

void PromptEncoder::Drop(int64_t end) {
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (rows_[i].end() > end) continue;
    media_[i].medium.reset();
    soft_[i] = {};
    rows_[i].values = {};
  }
}

}  // namespace rullama
