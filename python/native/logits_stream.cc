#include "python/native/logits_stream.h"

#include <span>
#include <tl/expected.hpp>
#include <utility>

namespace rullama::python {
namespace {

constexpr size_t kMaxWaiting = 2;  // parts; one has up to 64 MiB

}  // namespace

LogitsStream::LogitsStream(std::shared_ptr<Engine> engine, std::vector<int32_t> ids)
    : engine_(std::move(engine)), thread_([this, ids = std::move(ids)] { Run(ids); }) {}

LogitsStream::~LogitsStream() {
  Cancel();
  thread_.join();
}

void LogitsStream::Run(const std::vector<int32_t>& ids) {
  Status status = engine_->Logits(ids, [this](int64_t first, std::span<const float> logits) {
    Part part{.first = first, .logits = {logits.begin(), logits.end()}};
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return cancelled_ || waiting_.size() < kMaxWaiting; });
    if (cancelled_) return false;
    waiting_.push_back(std::move(part));
    changed_.notify_all();
    return true;
  });
  const std::scoped_lock lock(mutex_);
  status_ = std::move(status);
  over_ = true;
  changed_.notify_all();
}

Result<std::optional<LogitsStream::Part>> LogitsStream::Next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return over_ || cancelled_ || !waiting_.empty(); });
  if (cancelled_) return std::nullopt;
  if (waiting_.empty()) {
    if (!status_) return tl::unexpected(status_.error());
    return std::nullopt;
  }
  std::optional<Part> part = std::move(waiting_.front());
  waiting_.pop_front();
  changed_.notify_all();
  return part;
}

void LogitsStream::Cancel() {
  const std::scoped_lock lock(mutex_);
  cancelled_ = true;
  waiting_.clear();
  changed_.notify_all();
}

}  // namespace rullama::python
