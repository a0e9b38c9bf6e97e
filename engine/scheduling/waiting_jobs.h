// The jobs that have no slot yet. Clients take turns: the next job is the first one of the client
// that has waited longest since its last turn.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "engine/job.h"

namespace rullama {

class WaitingJobs {
 public:
  void Add(std::vector<std::unique_ptr<Job>> jobs);
  // The next job, which needs a slot for each of its answers; null if there is none, or if it needs
  // more than `free_slots`. Jobs after it do not overtake it. Those for which `can_start` is false
  // are passed over: they wait for a slot that is busy.
  [[nodiscard]] std::unique_ptr<Job> TakeNext(int64_t free_slots,
                                              const std::function<bool(const Job&)>& can_start);
  // Ends the jobs all of whose answers are cancelled.
  void EndCancelled(const std::function<bool(const Job&)>& is_cancelled);
  void EndAll();

  // Answers of all jobs.
  [[nodiscard]] int64_t answers() const;

 private:
  std::deque<std::unique_ptr<Job>> jobs_;
  std::map<uint64_t, uint64_t> last_turns_;  // by client; empty while no job waits
  uint64_t turns_ = 0;
};

// Answers of jobs that wait for a slot.
[[nodiscard]] int64_t AnswersOf(const Job& job);

}  // namespace rullama
