// A parallel for loop, and a parallel copy.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <exception>
#include <mutex>
#include <span>
#include <system_error>
#include <thread>
#include <vector>

namespace rullama::gpu {

// Calls work(0), ..., work(count - 1) on several threads, or on fewer where the system refuses one.
// Rethrows the first exception after all calls have ended.
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
    try {
      for (size_t i = 1; i < std::min(count, most); ++i) threads.emplace_back(run);
    } catch (const std::system_error&) {
      // The threads that there are do all of the work.
    }
    run();
  }
  if (failure) std::rethrow_exception(failure);
}

// Copies bytes that do not overlap. Large copies are shared by several threads: one core does not
// fill the bus to a device.
inline void CopyInParallel(std::byte* to, std::span<const std::byte> from) {
  constexpr size_t kPartBytes = size_t{2} << 20;
  constexpr size_t kMaxParts = 8;
  const size_t parts = std::clamp<size_t>(from.size() / kPartBytes, 1, kMaxParts);
  InParallel(parts, [&](size_t i) {
    const size_t begin = from.size() * i / parts, end = from.size() * (i + 1) / parts;
    std::memcpy(to + begin, from.data() + begin, end - begin);
  });
}

}  // namespace rullama::gpu
