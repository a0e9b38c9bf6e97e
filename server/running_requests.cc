#include "server/running_requests.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace rullama::server {
namespace {

constexpr std::chrono::milliseconds kWatchInterval{50};
constexpr int64_t kMaxRetrySeconds = 60;
constexpr double kMeanWeight = 0.1;  // of the latest request

struct CauseRow {
  std::string_view name;
  std::string_view code;
  std::string_view message;
};

const CauseRow& RowOf(CancelCause cause) {
  static constexpr CauseRow kRows[] = {
      {"-", "internal", "the answer ended without a cause; this is a bug of the server"},
      {"left", "client_left", "the client has left"},
      {"slow", "internal", "the client does not read its answer"},
      {"deadline", "queue_timeout",
       "the request has waited for a slot for longer than server.queue_timeout_s; try again later"},
      {"deadline", "deadline_exceeded",
       "the answer has taken longer than server.request_timeout_s; ask for fewer tokens"},
      {"drain", "shutting_down", "the server is shutting down; ask another one"},
  };
  return kRows[static_cast<size_t>(cause)];
}

}  // namespace

std::string_view NameOf(CancelCause cause) { return RowOf(cause).name; }

RunningRequest::RunningRequest(RunningRequests& owner, uint64_t client, int64_t answers)
    : owner_(owner), client_(client), answers_(answers) {}

RunningRequest::~RunningRequest() { owner_.Remove(this); }

void RunningRequest::SetCancel(std::function<void()> cancel) {
  const std::lock_guard lock(mutex_);
  cancel_ = std::move(cancel);
  if (cancel_ && cause() != CancelCause::kNone) cancel_();
}

void RunningRequest::GotSlot() {
  if (has_slot_.load()) return;
  slot_since_ = Clock::now();
  has_slot_.store(true);
}

void RunningRequest::Cancel(CancelCause cause) {
  CancelCause none = CancelCause::kNone;
  if (!cause_.compare_exchange_strong(none, cause)) return;
  const std::lock_guard lock(mutex_);
  if (cancel_) cancel_();
}

ApiError RunningRequest::Failure() const {
  const CauseRow& row = RowOf(cause());
  return MakeApiError(row.code, std::string(row.message));
}

RunningRequests::RunningRequests(const RequestLimits& limits)
    : limits_(limits), watcher_([this] { Watch(); }) {}

RunningRequests::~RunningRequests() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  watcher_.join();
}

ApiResult<std::unique_ptr<RunningRequest>> RunningRequests::Admit(uint64_t client,
                                                                  int64_t answers) {
  if (draining()) {
    return tl::unexpected(
        MakeApiError("shutting_down", "the server is shutting down; ask another one"));
  }
  const int64_t most = limits_.slots + std::min(limits_.max_queue, limits_.max_queue_per_client);
  if (answers > most) {
    return tl::unexpected(MakeApiError(
        "invalid_value",
        fmt::format("the request asks for {} answers (prompts times n), expected at most {}, the "
                    "slots and the places in the queue; ask for fewer, or raise server.max_queue "
                    "and server.max_queue_per_key",
                    answers, most),
        "n"));
  }
  const std::lock_guard lock(mutex_);
  const bool full = answers_ + answers > limits_.slots + limits_.max_queue;
  const int64_t own = answers_of_[client];
  if (full || own + answers > limits_.slots + limits_.max_queue_per_client) {
    ApiError error = MakeApiError(
        "queue_full",
        fmt::format("{} answers {}are being written or waited for, the limit; try again later",
                    full ? answers_ : own, full ? "" : "of this key "));
    error.fields.push_back({"Retry-After", std::to_string(RetryAfter())});
    return tl::unexpected(std::move(error));
  }
  answers_ += answers;
  answers_of_[client] += answers;
  auto request = std::make_unique<RunningRequest>(*this, client, answers);
  requests_.push_back(request.get());
  return request;
}

void RunningRequests::Remove(RunningRequest* request) {
  const std::lock_guard lock(mutex_);
  requests_.remove(request);
  answers_ -= request->answers_;
  int64_t& answers = answers_of_[request->client_];
  answers -= request->answers_;
  if (answers == 0) answers_of_.erase(request->client_);
  if (request->has_slot_) {
    mean_seconds_ += kMeanWeight * (SecondsSince(request->slot_since_) - mean_seconds_);
  }
}

int64_t RunningRequests::RetryAfter() const {
  const auto waiting = static_cast<double>(std::max<int64_t>(answers_ - limits_.slots, 0));
  const double seconds = mean_seconds_ * (waiting + 1) / static_cast<double>(limits_.slots);
  return std::clamp(static_cast<int64_t>(std::ceil(seconds)), int64_t{1}, kMaxRetrySeconds);
}

void RunningRequests::Watch() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    EndLateOnes();
    changed_.wait_for(lock, kWatchInterval);
  }
}

void RunningRequests::EndLateOnes() {
  const Clock::time_point now = Clock::now();
  for (RunningRequest* request : requests_) {
    if (request->has_slot_) {
      if (now - request->slot_since_ > limits_.request_timeout) {
        request->Cancel(CancelCause::kDeadline);
      }
    } else if (now - request->begin_ > limits_.queue_timeout) {
      request->Cancel(CancelCause::kQueueTimeout);
    }
  }
}

void RunningRequests::Drain() {
  draining_.store(true);
  const std::lock_guard lock(mutex_);
  for (RunningRequest* request : requests_) {
    if (!request->has_slot_) request->Cancel(CancelCause::kDrain);
  }
}

void RunningRequests::CancelAll() {
  draining_.store(true);
  const std::lock_guard lock(mutex_);
  for (RunningRequest* request : requests_) request->Cancel(CancelCause::kDrain);
}

}  // namespace rullama::server
