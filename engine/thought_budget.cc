#include "engine/thought_budget.h"

namespace rullama {

ThoughtBudget::ThoughtBudget(const Options& options)
    : begin_(options.begin),
      end_(options.end),
      left_(options.tokens),
      inside_(options.inside),
      end_alone_(static_cast<size_t>((options.vocabulary + 31) / 32)) {
  constraint::AllowToken(end_alone_, end_);
}

void ThoughtBudget::Accept(TokenId token) {
  if (token == begin_) inside_ = true;
  if (token == end_) inside_ = false;
  if (inside_) --left_;
}

std::span<const uint32_t> ThoughtBudget::Mask() const {
  if (inside_ && left_ <= 0) return end_alone_;
  return {};
}

}  // namespace rullama
