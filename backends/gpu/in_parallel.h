// A parallel for loop.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace rullama::gpu {

// Calls work(0), ..., work(count - 1) on several threads. Rethrows the first exception after all
// calls have ended.
template <typename Work>
void InParallel(size_t count, Work work) {
  std::atomic<size_t> next{0};
  std::exception_ptr failure;
  std::mutex mutex;
  const auto run = [&] {
    for (size_t i = next++; i < count; i = next++) {
      try {
        work(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
      }
    }
  };
  {
    const size_t most = std::max(1u, std::thread::hardware_concurrency());
    std::vector<std::jthread> threads;
    for (size_t i = 1; i < std::min(count, most); ++i) threads.emplace_back(run);
    run();
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace rullama::gpu
