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
  RL_ASSIGN_OR_RETURN(const std::vector<SoftRows> media, EncodeUpTo(running, end));
  RL_RETURN_IF_ERROR(batch_.ReadMedia(slot, chunk, media));
  for (size_t i = 0; i < running.soft.size(); ++i) {
    if (running.job->media[i].end() <= end) running.soft[i] = {};
  }
  return OkStatus();
}

Result<std::vector<SoftRows>> Scheduler::EncodeUpTo(Running& running, int64_t end) {
  const Job& job = *running.job;
  std::vector<SoftRows> media = SoftRowsOf(job.prompt, options_.whole_pictures);
  running.soft.resize(job.media.size());
  std::vector<SoftRows> encoded;
  for (size_t i = 0; i < job.media.size(); ++i) {
    if (media[i].end() <= running.read || media[i].first >= end) continue;
    SoftTokens& soft = running.soft[i];
    if (soft.tokens == 0) {
      RL_ASSIGN_OR_RETURN(soft, options_.encoder->Encode(*job.media[i].medium));
    }
    media[i].values = soft.values;
    encoded.push_back(media[i]);
  }
  return encoded;
}

}  // namespace rullama
