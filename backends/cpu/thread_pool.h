// A persistent pool of worker threads that execute a plan together.
//
// Run(body) calls body(worker) once on every worker, worker 0 being the caller, and returns when
// all are done. Inside the body, Barrier() separates phases. A waiting worker spins for a while,
// because phases are microseconds apart during a step, and then sleeps, so that an idle program
// uses no CPU time. Thread safety: one Run at a time, which the backend's device lock ensures. The
// destructor joins the threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace rullama::cpu {

class ThreadPool {
 public:
  // `workers` includes the caller and is at least 1. Throws sdk::Error (RL_UNAVAILABLE) if the
  // system refuses a thread.
  explicit ThreadPool(int workers);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  [[nodiscard]] int workers() const { return workers_; }
  void Run(const std::function<void(int worker)>& body);
  // Every worker of the running body must call it the same number of times.
  void Barrier();

 private:
  void Loop(int worker);
  void Stop();
  void WaitWhileEqual(std::atomic<uint32_t>& value, uint32_t old) const;

  const int workers_;
  const std::function<void(int)>* body_ = nullptr;
  // On separate cache lines, because each is written by one side and polled by the other.
  alignas(64) std::atomic<uint32_t> generation_{0};  // incremented by every Run()
  alignas(64) std::atomic<uint32_t> running_{0};     // pool threads that are still in the body
  alignas(64) std::atomic<uint32_t> arrived_{0};
  alignas(64) std::atomic<uint32_t> phase_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

}  // namespace rullama::cpu
