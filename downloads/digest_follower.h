// Computes the sum of a file while it is written, on a thread of its own: it reads what lies before
// the first gap. What an earlier process has written is read and summed in the same way.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "downloads/digest.h"

namespace rullama::downloads {

class DigestFollower {
 public:
  // `fd` stays open for as long as the object lives.
  DigestFollower(int fd, DigestKind kind, uint64_t bytes);
  ~DigestFollower();
  DigestFollower(const DigestFollower&) = delete;
  DigestFollower& operator=(const DigestFollower&) = delete;

  // All bytes before `frontier` are there; it never shrinks.
  void Advance(uint64_t frontier);
  // Whether all bytes have been read, or one of them cannot be.
  bool finished();
  // The sum, once finished; empty if the file could not be read.
  std::string Hex();

 private:
  void Follow(DigestKind kind);

  const int fd_;
  const uint64_t bytes_;
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t frontier_ = 0;
  bool ends_ = false;
  bool finished_ = false;
  std::string hex_;
  std::thread thread_;
};

}  // namespace rullama::downloads
