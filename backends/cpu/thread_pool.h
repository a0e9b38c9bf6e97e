// A persistent pool of worker threads that go through the phases of a plan together.
//
// Nobody waits for a worker that has not come: the caller can do all of the work alone, and every
// other worker takes part of the rest when it comes. A worker whose core runs something else for a
// while holds up the others only if it has begun a part of the work, or the end of the run if it
// had come and was looking for more.
//
// A worker that finds nothing to do spins for a while, because phases are microseconds apart during
// a step, and then sleeps, so that an idle program uses no CPU time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace rullama::cpu {

// Thread safety: one Run() or Share() at a time, which the backend's device lock ensures. The
// destructor joins the threads.
class ThreadPool {
 public:
  // Does a part of a phase, or all that is left of it. Several workers call it at the same time,
  // a worker also more than once, and also when nothing is left. Returns true to the one call that
  // ended the last part.
  using Body = std::function<bool(int worker, size_t phase)>;

  // `workers` includes the caller and is at least 1. Throws sdk::Error (RL_UNAVAILABLE) if the
  // system refuses a thread.
  explicit ThreadPool(int workers);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  [[nodiscard]] int workers() const { return workers_; }
  // Runs phases 0, 1, ..., each when the one before has ended, and returns when no worker is in the
  // body any more. The caller is worker 0.
  void Run(size_t phases, const Body& body);
  // Runs independent parts, in any order.
  void Share(size_t parts, const std::function<void(size_t part)>& run);

 private:
  void Loop(int worker);
  void Stop();
  // Runs phases until all have ended or, but for worker 0, one takes others long to end. Returns
  // the value of advances_ then.
  uint32_t Work(int worker);
  // Takes part in the run, if there is one.
  bool Enter();
  void Leave();
  // Ends the phase and wakes those that sleep until it ends.
  void Advance();

  const int workers_;
  // The body, the phases and the start of the run; written while no worker is in it.
  const Body* body_ = nullptr;
  uint32_t phases_ = 0;
  uint32_t first_ = 0;  // the value of advances_ in phase 0
  // On separate cache lines, because they are polled at different times.
  alignas(64) std::atomic<uint32_t> advances_{0};  // phases so far, and 1 for each run
  alignas(64) std::atomic<uint32_t> inside_{0};    // how many pool threads are in the run; kOpen
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

}  // namespace rullama::cpu
