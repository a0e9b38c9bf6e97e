#include "backends/cpu/thread_pool.h"

#include <rullama/sdk/backend.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <string>
#include <system_error>

namespace rullama::cpu {
namespace {

// Polls before a thread sleeps: longer than any gap inside a step, far shorter than a human
// notices.
constexpr int kSpins = 4000;
// Polls before a worker leaves a run, whose end waits for the workers inside: longer than workers
// that have a core each wait for one another.
constexpr int kSpinsInside = 400;

// The bit of inside_ that lets workers enter.
constexpr uint32_t kOpen = uint32_t{1} << 31;

void Pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

// Polls until the value has changed; false if it has not after `spins` polls.
bool SpinWhileEqual(const std::atomic<uint32_t>& value, uint32_t old, int spins) {
  for (int spin = 0; spin < spins; ++spin) {
    if (value.load(std::memory_order_acquire) != old) return true;
    Pause();
  }
  return false;
}

void WaitWhileEqual(const std::atomic<uint32_t>& value, uint32_t old) {
  if (SpinWhileEqual(value, old, kSpins)) return;
  while (value.load(std::memory_order_acquire) == old) value.wait(old, std::memory_order_acquire);
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
  Advance();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::Advance() {
  advances_.fetch_add(1, std::memory_order_release);
  advances_.notify_all();
}

bool ThreadPool::Enter() {
  uint32_t inside = inside_.load(std::memory_order_relaxed);
  while ((inside & kOpen) != 0) {
    if (inside_.compare_exchange_weak(inside, inside + 1, std::memory_order_acq_rel)) return true;
  }
  return false;
}

void ThreadPool::Leave() {
  if (inside_.fetch_sub(1, std::memory_order_acq_rel) == 1) inside_.notify_all();
}

void ThreadPool::Run(size_t phases, const Body& body) {
  if (workers_ == 1) {
    for (size_t phase = 0; phase < phases; ++phase) body(0, phase);
    return;
  }
  body_ = &body;
  phases_ = static_cast<uint32_t>(phases);
  first_ = advances_.load(std::memory_order_relaxed) + 1;
  inside_.store(kOpen, std::memory_order_release);
  Advance();
  Work(0);
  uint32_t inside = inside_.fetch_and(~kOpen, std::memory_order_acq_rel) & ~kOpen;
  for (; inside != 0; inside = inside_.load(std::memory_order_acquire)) {
    WaitWhileEqual(inside_, inside);
  }
}

void ThreadPool::Share(size_t parts, const std::function<void(size_t)>& run) {
  if (parts == 0) return;
  std::atomic<size_t> next{0};
  std::atomic<size_t> left{parts};
  Run(1, [&](int /*worker*/, size_t /*phase*/) {
    size_t ran = 0;
    for (size_t part = next.fetch_add(1); part < parts; part = next.fetch_add(1), ++ran) run(part);
    return ran > 0 && left.fetch_sub(ran, std::memory_order_acq_rel) == ran;
  });
}

uint32_t ThreadPool::Work(int worker) {
  for (;;) {
    const uint32_t advances = advances_.load(std::memory_order_acquire);
    const uint32_t phase = advances - first_;
    if (phase >= phases_) return advances;
    if ((*body_)(worker, phase)) {
      Advance();
    } else if (worker == 0) {
      WaitWhileEqual(advances_, advances);
    } else if (!SpinWhileEqual(advances_, advances, kSpinsInside)) {
      return advances;
    }
  }
}

void ThreadPool::Loop(int worker) {
  for (uint32_t seen = 0;;) {
    WaitWhileEqual(advances_, seen);
    seen = advances_.load(std::memory_order_acquire);
    if (stop_.load()) return;
    if (!Enter()) continue;
    seen = Work(worker);
    Leave();
  }
}

}  // namespace rullama::cpu
