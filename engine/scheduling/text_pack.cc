#include "engine/scheduling/text_pack.h"

namespace rullama {

void TextPack::Clear() {
  step_.tokens.clear();
  step_.pos.clear();
  step_.slot.clear();
  first_rows_.clear();
  slots_ = 0;
  gap_slot_ = -1;
  gap_rows_ = 0;
}

bool TextPack::Add(std::span<const int32_t> ids) {
  const int64_t rows = std::ssize(step_.tokens);
  const int64_t first = (rows + limits_.alignment - 1) / limits_.alignment * limits_.alignment;
  const bool fits =
      first + std::ssize(ids) <= limits_.rows && std::ssize(first_rows_) < limits_.texts;
  if (!first_rows_.empty() && !fits) return false;
  Fill(first);
  first_rows_.push_back(first);
  const int32_t slot = slots_++;
  for (const int32_t id : ids) {
    step_.pos.push_back(static_cast<int32_t>(std::ssize(step_.tokens) - first));
    step_.tokens.push_back(id);
    step_.slot.push_back(slot);
  }
  return true;
}

void TextPack::Fill(int64_t end) {
  if (std::ssize(step_.tokens) < end && gap_slot_ < 0) gap_slot_ = slots_++;
  while (std::ssize(step_.tokens) < end) {
    step_.tokens.push_back(0);
    step_.pos.push_back(gap_rows_++);
    step_.slot.push_back(gap_slot_);
  }
}

}  // namespace rullama
