#include "core/runtime/slot_log.h"

#include <algorithm>

namespace rullama {

void SlotLog::Append(int32_t end) { written_ = std::max(written_, end); }

void SlotLog::GiveUpFrom(int32_t p) {
  ++moment_;
  while (!given_up_.empty() && given_up_.back().from >= p) given_up_.pop_back();
  given_up_.push_back({moment_, p});
}

void SlotLog::GoBack(int32_t p) {
  if (p == 0 || written_ <= ring_rows_) written_ = p;
  GiveUpFrom(p);
}

void SlotLog::Replace(int32_t kept, int32_t written) {
  written_ = written;
  GiveUpFrom(kept);
}

bool SlotLog::KeptSince(uint64_t moment, int32_t p) const {
  const auto later =
      std::ranges::find_if(given_up_, [=](const GivenUp& event) { return event.moment > moment; });
  return later == given_up_.end() || later->from >= p;
}

}  // namespace rullama
