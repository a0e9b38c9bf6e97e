// The requests that run or wait for a slot: how many there may be, how long they may take, and why
// they are ended.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "server/api_error.h"
#include "server/call.h"

namespace rullama::server {

struct RequestLimits {
  int64_t slots = 1;
  int64_t max_queue = 64;  // that wait for a slot
  int64_t max_queue_per_client = 64;
  std::chrono::milliseconds queue_timeout{300'000};
  std::chrono::milliseconds request_timeout{600'000};  // from the slot to the last token
};

// Why an answer was ended before its end.
enum class CancelCause : uint8_t { kNone, kLeft, kSlow, kQueueTimeout, kDeadline, kDrain };

// The word for `cause` in logs and metrics.
std::string_view NameOf(CancelCause cause);

class RunningRequests;

// A request among the running ones, for as long as it lives.
//
// Thread safety: all member functions from any thread.
class RunningRequest {
 public:
  RunningRequest(RunningRequests& owner, uint64_t client, int64_t answers);
  RunningRequest(const RunningRequest&) = delete;
  RunningRequest& operator=(const RunningRequest&) = delete;
  ~RunningRequest();

  // Sets what ends the request; called at once if it has been ended already. Empty takes it back.
  void SetCancel(std::function<void()> cancel);
  // It has a slot: from now on the limit is that of running.
  void GotSlot();
  // Ends it. The first cause counts.
  void Cancel(CancelCause cause);
  [[nodiscard]] CancelCause cause() const { return cause_.load(); }
  // The error for a client that has got nothing yet, or whose answer breaks off.
  [[nodiscard]] ApiError Failure() const;

 private:
  friend class RunningRequests;
  RunningRequests& owner_;
  uint64_t client_;
  int64_t answers_;  // slots it asks for
  Clock::time_point begin_ = Clock::now();
  Clock::time_point slot_since_;
  std::atomic<bool> has_slot_ = false;
  std::atomic<CancelCause> cause_ = CancelCause::kNone;
  std::mutex mutex_;  // guards cancel_
  std::function<void()> cancel_;
};

// Thread safety: all member functions from any thread. A thread of its own looks for requests that
// have taken too long.
class RunningRequests {
 public:
  explicit RunningRequests(const RequestLimits& limits);
  RunningRequests(const RunningRequests&) = delete;
  RunningRequests& operator=(const RunningRequests&) = delete;
  ~RunningRequests();

  // Takes in a request for `answers` answers. Errors: invalid_value (400) for more than an empty
  // queue would take, queue_full (429) with Retry-After, shutting_down (503).
  ApiResult<std::unique_ptr<RunningRequest>> Admit(uint64_t client, int64_t answers);

  // Refuses new requests and ends those without a slot.
  void Drain();
  [[nodiscard]] bool draining() const { return draining_.load(); }
  // Ends all.
  void CancelAll();

  [[nodiscard]] const RequestLimits& limits() const { return limits_; }

 private:
  friend class RunningRequest;
  void Remove(RunningRequest* request);
  void Watch();
  void EndLateOnes();
  // Seconds until a slot may be free: the mean time of a request, times those in front, by slots.
  [[nodiscard]] int64_t RetryAfter() const;

  RequestLimits limits_;
  std::atomic<bool> draining_ = false;
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  bool stopping_ = false;
  std::list<RunningRequest*> requests_;
  int64_t answers_ = 0;
  std::map<uint64_t, int64_t> answers_of_;  // by client
  double mean_seconds_ = 1;                 // of a request with a slot; recent ones count more
  std::thread watcher_;
};

}  // namespace rullama::server
