// Work whose failure is noted on the device, where only a wait can see it.
//
// Thread safety: none; used under the host's lock on the device.
#pragma once

#include <utility>
#include <vector>

namespace rullama::gpu {

class Noted {
 public:
  // Throws the error noted since the last call, if any. The device is idle.
  virtual void CheckFailure() = 0;

 protected:
  ~Noted() = default;
};

// What was submitted since the last wait.
class RunningWork {
 public:
  void Add(Noted& work) { running_.push_back(&work); }
  void Drop(const Noted& work) { std::erase(running_, &work); }
  // After a wait. Throws what the first of them has noted.
  void Check() {
    for (Noted* work : std::exchange(running_, {})) work->CheckFailure();
  }

 private:
  std::vector<Noted*> running_;
};

}  // namespace rullama::gpu
