// The part of Scheduler that reads the pictures and sounds of prompts.
#include <algorithm>
#include <memory>
#include <utility>

#include "engine/scheduler.h"
#include "engine/soft_row_ids.h"

namespace rullama {

Result<bool> Scheduler::EncodeNext(Running& running, int64_t end) {
  const Job& job = *running.job;
  while (const auto missing = running.media.Missing(running.read, end)) {
    const DecodedMedium& medium = running.media.medium(*missing);
    std::shared_ptr<const SoftTokens> soft;
    if (job.reuse_prefix) soft = media_cache_.Find(job.client, medium.hash);
    const bool found = soft != nullptr;
    if (!found) {
      RL_ASSIGN_OR_RETURN(soft, Encode(running, medium));
    }
    running.media.Take(*missing, std::move(soft));
    const std::lock_guard lock(mutex_);
    ++(found ? stats_.media_hits : stats_.media_misses);
    if (!found) return true;
  }
  return false;
}

Result<std::shared_ptr<const SoftTokens>> Scheduler::Encode(Running& running,
                                                            const DecodedMedium& medium) {
  const EngineClock::time_point begin = EngineClock::now();
  session_.WaitForSteps();  // the encoder uses the devices of the session
  RL_ASSIGN_OR_RETURN(SoftTokens encoded, options_.encoder->Encode(medium));
  auto soft = std::make_shared<const SoftTokens>(std::move(encoded));
  const double seconds = std::chrono::duration<double>(EngineClock::now() - begin).count();
  running.encode_seconds += seconds;
  const Job& job = *running.job;
  if (job.reuse_prefix) media_cache_.Keep(job.client, soft);
  const std::lock_guard lock(mutex_);
  stats_.encode_seconds.Observe(seconds);
  return soft;
}

Status Scheduler::ReadRows(int32_t slot, Running& running, std::span<const int32_t> chunk) {
  if (std::ranges::none_of(chunk, IsSoftRow)) {
    RL_RETURN_IF_ERROR(batch_.Read(slot, chunk, {}));
    return OkStatus();
  }
  RL_RETURN_IF_ERROR(batch_.ReadMedia(slot, chunk, running.media.rows()));
  running.media.Drop(running.read + std::ssize(chunk));
  return OkStatus();
}

}  // namespace rullama
