#include "downloads/digest_follower.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <vector>

namespace rullama::downloads {

DigestFollower::DigestFollower(int fd, DigestKind kind, uint64_t bytes)
    : fd_(fd), bytes_(bytes), thread_([this, kind] { Follow(kind); }) {}

DigestFollower::~DigestFollower() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void DigestFollower::Advance(uint64_t frontier) {
  {
    const std::lock_guard lock(mutex_);
    if (frontier == frontier_) return;
    frontier_ = frontier;
  }
  changed_.notify_one();
}

bool DigestFollower::finished() {
  const std::lock_guard lock(mutex_);
  return finished_;
}

std::string DigestFollower::Hex() {
  const std::lock_guard lock(mutex_);
  return hex_;
}

void DigestFollower::Follow(DigestKind kind) {
  constexpr uint64_t kReadBytes = 1 << 20;
  std::vector<std::byte> buffer(kReadBytes);
  Hasher hasher(kind, bytes_);
  bool readable = true;
  for (uint64_t at = 0; at < bytes_ && readable;) {
    uint64_t end = 0;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return ends_ || frontier_ > at; });
      if (ends_) return;
      end = std::min(frontier_, at + kReadBytes);
    }
    const ssize_t count = ::pread(fd_, buffer.data(), end - at, static_cast<off_t>(at));
    if (count < 0 && errno == EINTR) continue;
    readable = count > 0;
    if (!readable) break;
    hasher.Add(std::span(buffer).first(static_cast<size_t>(count)));
    at += static_cast<uint64_t>(count);
  }
  const std::lock_guard lock(mutex_);
  if (readable) hex_ = hasher.Hex();
  finished_ = true;
}

}  // namespace rullama::downloads
