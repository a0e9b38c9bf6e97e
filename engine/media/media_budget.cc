#include "engine/media/media_budget.h"

#include <algorithm>
#include <condition_variable>
#include <limits>
#include <list>
#include <mutex>
#include <utility>

namespace rullama {

class MediaBudget::Pool {
 public:
  Pool(uint64_t bytes, int64_t holders) : bytes_(bytes), holders_(holders) {}

  // Whether it took the bytes; else `stop` was requested.
  bool Take(uint64_t bytes, const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    const auto turn = waiting_.insert(waiting_.end(), bytes);
    const bool taken =
        changed_.wait(lock, stop, [&] { return turn == waiting_.begin() && HasRoom(bytes); });
    waiting_.erase(turn);
    if (taken) {
      used_ += bytes;
      ++held_;
    }
    changed_.notify_all();
    return taken;
  }

  void GiveBack(uint64_t bytes, int64_t holders) {
    const std::lock_guard lock(mutex_);
    used_ -= bytes;
    held_ -= holders;
    changed_.notify_all();
  }

  [[nodiscard]] size_t waiting() {
    const std::lock_guard lock(mutex_);
    return waiting_.size();
  }

  void AddHolder() {
    const std::lock_guard lock(mutex_);
    ++held_;
  }

 private:
  [[nodiscard]] bool HasRoom(uint64_t bytes) const {
    if (held_ == 0) return true;
    return held_ < holders_ && used_ <= bytes_ && bytes <= bytes_ - used_;
  }

  const uint64_t bytes_;
  const int64_t holders_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable_any changed_;
  std::list<uint64_t> waiting_;  // bytes that are asked for, the first to get some first
  uint64_t used_ = 0;
  int64_t held_ = 0;  // parts
};

MediaBudget::Part& MediaBudget::Part::operator=(Part&& other) noexcept {
  if (this == &other) return *this;
  Keep(0);
  pool_ = std::move(other.pool_);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

void MediaBudget::Part::Keep(uint64_t bytes) {
  if (!pool_) return;
  const uint64_t kept = std::min(bytes, bytes_);
  pool_->GiveBack(bytes_ - kept, kept == 0 ? 1 : 0);
  bytes_ = kept;
  if (kept == 0) pool_.reset();
}

MediaBudget::Part MediaBudget::Part::Split(uint64_t bytes) {
  const uint64_t taken = std::min(bytes, bytes_);
  if (!pool_ || taken == 0) return {};
  pool_->AddHolder();
  Part part(pool_, taken);
  bytes_ -= taken;
  return part;
}

MediaBudget::MediaBudget(const MediaBudgetLimits& limits)
    : decoding_(std::make_shared<Pool>(limits.decoding_bytes, limits.decoders)),
      decoded_(std::make_shared<Pool>(limits.decoded_bytes, std::numeric_limits<int64_t>::max())) {}

namespace {

tl::unexpected<Error> WaitingStopped() {
  return MakeError(ErrorKind::kRuntime, "run.cancelled",
                   "the request was ended while its pictures and sounds waited to be decoded");
}

}  // namespace

Result<MediaBudget::Part> MediaBudget::ReserveDecoding(uint64_t bytes,
                                                       const std::stop_token& stop) {
  if (!decoding_->Take(bytes, stop)) return WaitingStopped();
  return Part(decoding_, bytes);
}

Result<MediaBudget::Part> MediaBudget::ReserveDecoded(uint64_t bytes, const std::stop_token& stop) {
  if (!decoded_->Take(bytes, stop)) return WaitingStopped();
  return Part(decoded_, bytes);
}

size_t MediaBudget::waiting_to_decode() const { return decoding_->waiting(); }

}  // namespace rullama
