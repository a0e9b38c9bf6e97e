#include "engine/scheduling/waiting_jobs.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace rullama {
namespace {

void PushCancelled(const Job& job) {
  job.channel->Push(RequestEnd{StopReason::kCancelled});
  for (const auto& other : job.choices) PushCancelled(*other);
}

}  // namespace

int64_t AnswersOf(const Job& job) { return 1 + std::ssize(job.choices); }

void WaitingJobs::Add(std::vector<std::unique_ptr<Job>> jobs) {
  std::ranges::move(jobs, std::back_inserter(jobs_));
}

std::unique_ptr<Job> WaitingJobs::TakeNext(int64_t free_slots,
                                           const std::function<bool(const Job&)>& can_start) {
  if (jobs_.empty()) {
    last_turns_.clear();
    return nullptr;
  }
  const auto last_turn = [this](const Job& job) {
    const auto last = last_turns_.find(job.space.client);
    return last == last_turns_.end() ? 0 : last->second;
  };
  auto next = jobs_.end();
  for (auto job = jobs_.begin(); job != jobs_.end(); ++job) {
    if (!can_start(**job)) continue;
    if (next == jobs_.end() || last_turn(**job) < last_turn(**next)) next = job;
  }
  if (next == jobs_.end() || AnswersOf(**next) > free_slots) return nullptr;
  std::unique_ptr<Job> job = std::move(*next);
  jobs_.erase(next);
  last_turns_[job->space.client] = ++turns_;
  return job;
}

void WaitingJobs::EndCancelled(const std::function<bool(const Job&)>& is_cancelled) {
  std::erase_if(jobs_, [&is_cancelled](const auto& job) {
    const bool all =
        is_cancelled(*job) && std::ranges::all_of(job->choices, [&is_cancelled](const auto& other) {
          return is_cancelled(*other);
        });
    if (all) PushCancelled(*job);
    return all;
  });
}

void WaitingJobs::EndAll() {
  for (const auto& job : jobs_) PushCancelled(*job);
  jobs_.clear();
}

int64_t WaitingJobs::answers() const {
  int64_t answers = 0;
  for (const auto& job : jobs_) answers += AnswersOf(*job);
  return answers;
}

}  // namespace rullama
