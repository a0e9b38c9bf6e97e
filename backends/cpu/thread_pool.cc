#include "backends/cpu/thread_pool.h"

#include <rullama/sdk/backend.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <string>
#include <system_error>

namespace rullama::cpu {
namespace {

// About 50 microseconds of polling: longer than any gap inside a step, far shorter than a human
// notices.
constexpr int kSpins = 4000;

void Pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

}  // namespace

ThreadPool::ThreadPool(int workers) : workers_(workers) {
  threads_.reserve(static_cast<size_t>(workers - 1));
  try {
    for (int worker = 1; worker < workers; ++worker) {
      threads_.emplace_back([this, worker] { Loop(worker); });
    }
  } catch (const std::system_error& error) {
    // Threads that run already must not be destroyed while they do.
    const std::string started = std::to_string(threads_.size() + 1);
    Stop();
    throw sdk::Error(RL_UNAVAILABLE,
                     "the system started " + started + " of " + std::to_string(workers) +
                         " threads, then refused: " + error.code().message() +
                         "; lower --threads, or raise the limits on processes and memory "
                         "(ulimit -u, ulimit -v)");
  }
}

ThreadPool::~ThreadPool() { Stop(); }

void ThreadPool::Stop() {
  stop_.store(true);
  generation_.fetch_add(1);
  generation_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::WaitWhileEqual(std::atomic<uint32_t>& value, uint32_t old) const {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (value.load(std::memory_order_acquire) != old) return;
    Pause();
  }
  while (value.load(std::memory_order_acquire) == old) value.wait(old, std::memory_order_acquire);
}

void ThreadPool::Run(const std::function<void(int)>& body) {
  body_ = &body;
  running_.store(static_cast<uint32_t>(workers_ - 1), std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  body(0);
  for (uint32_t left = running_.load(std::memory_order_acquire); left != 0;
       left = running_.load(std::memory_order_acquire)) {
    WaitWhileEqual(running_, left);
  }
}

void ThreadPool::Barrier() {
  if (workers_ == 1) return;
  const uint32_t phase = phase_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<uint32_t>(workers_)) {
    arrived_.store(0, std::memory_order_relaxed);
    phase_.store(phase + 1, std::memory_order_release);
    phase_.notify_all();
    return;
  }
  WaitWhileEqual(phase_, phase);
}

void ThreadPool::Loop(int worker) {
  for (uint32_t seen = 0;;) {
    WaitWhileEqual(generation_, seen);
    seen = generation_.load(std::memory_order_acquire);
    if (stop_.load()) return;
    (*body_)(worker);
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) running_.notify_all();
  }
}

}  // namespace rullama::cpu
