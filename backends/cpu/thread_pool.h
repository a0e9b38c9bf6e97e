// A persistent pool of workers that walk a plan together.
//
// Run(body) calls body(worker) once on every worker, worker 0 being the caller, and returns when
// all are done. Inside the body, Barrier() separates phases. Waiting spins for a while, because
// phases are microseconds apart during a step, and then sleeps, because an idle program must not
// burn a core. Thread safety: one Run at a time; the backend's device lock sees to that. Joined by
// the destructor.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace rullama::cpu {

class ThreadPool {
 public:
  // Workers including the caller, 1 or more.
  explicit ThreadPool(int workers);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  [[nodiscard]] int workers() const { return workers_; }
  void Run(const std::function<void(int worker)>& body);
  // Every worker of the running body has to call it the same number of times.
  void Barrier();

 private:
  void Loop(int worker);
  void WaitWhileEqual(std::atomic<uint32_t>& value, uint32_t old) const;

  const int workers_;
  const std::function<void(int)>* body_ = nullptr;
  // On their own cache lines: each is written by one side and polled by the other.
  alignas(64) std::atomic<uint32_t> generation_{0};  // grows when a body is handed out
  alignas(64) std::atomic<uint32_t> running_{0};     // pool threads still in the body
  alignas(64) std::atomic<uint32_t> arrived_{0};
  alignas(64) std::atomic<uint32_t> phase_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

}  // namespace rullama::cpu
