// Errors that kernels record in device memory, which the host can read only after a wait.
//
// Thread safety: none; used under the host's lock on the device.
#pragma once

#include <exception>
#include <utility>
#include <vector>

namespace rullama::gpu {

class Noted {
 public:
  // Throws the error recorded since the last call, if any. The device must be idle.
  virtual void CheckFailure() = 0;

 protected:
  ~Noted() = default;
};

// The work submitted since the last wait.
class RunningWork {
 public:
  void Add(Noted& work) { running_.push_back(&work); }
  void Drop(const Noted& work) { std::erase(running_, &work); }
  // Call after a wait. Throws the error of the first work that recorded one; those of the others
  // are forgotten.
  void Check() {
    std::exception_ptr first;
    for (Noted* work : std::exchange(running_, {})) {
      try {
        work->CheckFailure();
      } catch (...) {
        if (!first) first = std::current_exception();
      }
    }
    if (first) std::rethrow_exception(first);
  }

 private:
  std::vector<Noted*> running_;
};

}  // namespace rullama::gpu
