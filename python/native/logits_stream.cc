#include "python/native/logits_stream.h"

#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <span>
#include <thread>
#include <tl/expected.hpp>
#include <utility>

#include "python/native/interpreter.h"

namespace rullama::python {
namespace {

constexpr size_t kMaxWaiting = 2;  // parts; one has up to 64 MiB

}  // namespace

struct LogitsStream::Reading {
  Reading(std::shared_ptr<Engine> from, std::vector<int32_t> ids)
      : engine(std::move(from)), thread([this, ids = std::move(ids)] { Run(ids); }) {}
  ~Reading() {
    Cancel();
    thread.join();
  }
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;

  void Run(const std::vector<int32_t>& ids);
  void Cancel();

  std::shared_ptr<Engine> engine;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Part> waiting;
  Status status = OkStatus();
  bool over = false;
  bool cancelled = false;
  CancelledAtExit at_exit{[this] { Cancel(); }};
  std::thread thread;  // last: uses the others
};

void LogitsStream::Reading::Run(const std::vector<int32_t>& ids) {
  Status result = engine->Logits(ids, [this](int64_t first, std::span<const float> logits) {
    Part part{.first = first, .logits = {logits.begin(), logits.end()}};
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return cancelled || waiting.size() < kMaxWaiting; });
    if (cancelled) return false;
    waiting.push_back(std::move(part));
    changed.notify_all();
    return true;
  });
  const std::scoped_lock lock(mutex);
  status = std::move(result);
  over = true;
  changed.notify_all();
}

void LogitsStream::Reading::Cancel() {
  const std::scoped_lock lock(mutex);
  cancelled = true;
  waiting.clear();
  changed.notify_all();
}

LogitsStream::LogitsStream(std::shared_ptr<Engine> engine, std::vector<int32_t> ids)
    : home_(::getpid()), reading_(std::make_unique<Reading>(std::move(engine), std::move(ids))) {}

LogitsStream::~LogitsStream() {
  if (IsForked()) {
    static_cast<void>(reading_.release());
    return;
  }
  const GilReleased released;  // the thread ends after its chunk
  reading_.reset();
}

bool LogitsStream::IsForked() const { return ::getpid() != home_; }

Result<std::optional<LogitsStream::Part>> LogitsStream::Next() {
  Reading& reading = *reading_;
  if (IsForked()) {
    // The engine knows the words.
    const Status refused =
        reading.engine->Logits({}, [](int64_t, std::span<const float>) { return false; });
    return tl::unexpected(refused.error());
  }
  std::unique_lock lock(reading.mutex);
  reading.changed.wait(
      lock, [&] { return reading.over || reading.cancelled || !reading.waiting.empty(); });
  if (reading.cancelled) return std::nullopt;
  if (reading.waiting.empty()) {
    if (!reading.status) return tl::unexpected(reading.status.error());
    return std::nullopt;
  }
  std::optional<Part> part = std::move(reading.waiting.front());
  reading.waiting.pop_front();
  reading.changed.notify_all();
  return part;
}

void LogitsStream::Cancel() {
  if (!IsForked()) reading_->Cancel();
}

int64_t LogitsStream::vocabulary() const { return reading_->engine->info().vocabulary; }

}  // namespace rullama::python
