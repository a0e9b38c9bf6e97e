#include "backends/gpu/dispatch_times.h"

#include <algorithm>

namespace rullama::gpu {

void DispatchTimes::Start(uint64_t submitted) {
  records_.clear();
  submitted_ = submitted;
}

void DispatchTimes::Add(std::span<const uint32_t> ops, uint64_t begin, uint64_t end) {
  if (records_.empty()) device_begin_ = begin;
  // Clocks of devices tick in steps, and the end of one dispatch may be the begin of the next.
  const uint64_t earliest = records_.empty() ? submitted_ : records_.back().end;
  const auto on_host = [&](uint64_t time) {
    return std::max(earliest, submitted_ + (std::max(time, device_begin_) - device_begin_));
  };
  const uint64_t first = on_host(begin);
  records_.push_back(
      {ops.data(), static_cast<uint32_t>(ops.size()), 0, first, std::max(first, on_host(end))});
}

}  // namespace rullama::gpu
