#include "engine/scheduling/scheduler_options.h"

#include <algorithm>

namespace rullama {

int64_t SchedulerOptions::CapacityOf(const Job& job) const {
  return job.max_context > 0 ? std::min(job.max_context, capacity) : capacity;
}

bool SchedulerOptions::IsCancelled(const Job& job) const {
  return job.channel->cancelled() || (cancelled && *cancelled);
}

bool SchedulerOptions::IsEnd(int32_t token) const {
  return std::ranges::find(end_tokens, token) != end_tokens.end();
}

}  // namespace rullama
