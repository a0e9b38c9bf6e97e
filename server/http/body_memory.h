// How many bytes the bodies of all requests together may have, from the time at which they are read
// until their requests are answered. Only bytes that have come count, so that nobody can reserve
// memory without sending.
//
// Thread safety: all member functions from any thread; a Share by one thread at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace rullama::server {

class BodyMemory {
 public:
  // Of each body this much is not counted, so that small requests are read while large ones have
  // taken all there is.
  static constexpr uint64_t kFreeBytes = 64 << 10;

  // What one body has taken; given back when it goes. The BodyMemory outlives it.
  class Share {
   public:
    explicit Share(std::shared_ptr<BodyMemory> memory) : memory_(std::move(memory)) {}
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;
    ~Share() { memory_->used_ -= taken_; }

    // Sets the size of the body, in bytes. False if there is no room for it.
    bool Grow(uint64_t body_bytes) {
      if (body_bytes <= kFreeBytes + taken_) return true;
      const uint64_t more = body_bytes - kFreeBytes - taken_;
      if (memory_->used_.fetch_add(more) + more > memory_->limit_) {
        memory_->used_ -= more;
        return false;
      }
      taken_ += more;
      return true;
    }

   private:
    std::shared_ptr<BodyMemory> memory_;
    uint64_t taken_ = 0;
  };

  explicit BodyMemory(uint64_t limit) : limit_(limit) {}
  [[nodiscard]] uint64_t limit() const { return limit_; }

 private:
  const uint64_t limit_;
  std::atomic<uint64_t> used_ = 0;
};

}  // namespace rullama::server
