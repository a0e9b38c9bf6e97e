#include "core/runtime/soft_rows.h"

#include <algorithm>
#include <numeric>

#include "core/ir/media_names.h"

namespace rullama {

Status SoftRowInputs::Set(Session& session, std::span<const SoftRows> media, int64_t first,
                          int64_t count) {
  const int64_t end = first + count;
  soft_.assign(static_cast<size_t>(count * width_), 0);
  keep_.assign(static_cast<size_t>(count), 1);
  ends_.resize(static_cast<size_t>(count));
  std::iota(ends_.begin(), ends_.end(), static_cast<int32_t>(first));
  for (const SoftRows& medium : media) {
    if (medium.end() <= first || medium.first >= end) continue;
    if (std::ssize(medium.values) != medium.count * width_) {
      return MakeError(ErrorKind::kRuntime, "session.internal",
                       "soft tokens of {} rows are {} numbers, expected {} for each row",
                       medium.count, medium.values.size(), width_);
    }
    const bool whole = medium.first >= first && medium.end() <= end;
    if (medium.see_each_other && !whole) {
      return MakeError(ErrorKind::kRuntime, "session.internal",
                       "a step has rows {} to {}, which cut a picture of rows {} to {}", first, end,
                       medium.first, medium.end());
    }
    Place(medium, first, end);
  }
  RL_RETURN_IF_ERROR(session.SetInput(media_names::kSoft, std::as_bytes(std::span(soft_))));
  RL_RETURN_IF_ERROR(session.SetInput(media_names::kKeep, std::as_bytes(std::span(keep_))));
  if (!last_seen_) return OkStatus();
  return session.SetInput(media_names::kLastSeen, std::as_bytes(std::span(ends_)));
}

void SoftRowInputs::Place(const SoftRows& medium, int64_t first, int64_t end) {
  for (int64_t row = std::max(first, medium.first); row < std::min(end, medium.end()); ++row) {
    const auto in_step = static_cast<size_t>(row - first);
    const auto values = medium.values.subspan(static_cast<size_t>((row - medium.first) * width_),
                                              static_cast<size_t>(width_));
    std::ranges::copy(values, soft_.begin() + static_cast<std::ptrdiff_t>((row - first) * width_));
    keep_[in_step] = 0;
    if (medium.see_each_other) ends_[in_step] = static_cast<int32_t>(medium.end() - 1);
  }
}

}  // namespace rullama
