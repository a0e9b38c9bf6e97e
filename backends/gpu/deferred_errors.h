// Errors that kernels record in device memory, which the host can read only after a wait.
//
// Thread safety: none; used under the host's lock on the device.
#pragma once

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
  // Call after a wait. Throws the error of the first work that recorded one.
  void Check() {
    for (Noted* work : std::exchange(running_, {})) work->CheckFailure();
  }

 private:
  std::vector<Noted*> running_;
};

}  // namespace rullama::gpu
