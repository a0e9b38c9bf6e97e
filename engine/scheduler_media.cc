// The part of Scheduler that reads the pictures and sounds of prompts.
#include <algorithm>

#include "engine/scheduler.h"
#include "engine/soft_row_ids.h"

namespace rullama {

Status Scheduler::ReadRows(int32_t slot, Running& running, std::span<const int32_t> chunk) {
  if (std::ranges::none_of(chunk, IsSoftRow)) {
    RL_RETURN_IF_ERROR(batch_.Read(slot, chunk, {}));
    return OkStatus();
  }
  const int64_t end = running.read + std::ssize(chunk);
  RL_RETURN_IF_ERROR(running.media.Encode(*options_.encoder, running.read, end));
  RL_RETURN_IF_ERROR(batch_.ReadMedia(slot, chunk, running.media.rows()));
  running.media.Drop(end);
  return OkStatus();
}

}  // namespace rullama
