// Splits [0, count) into one contiguous range per hardware thread and runs `body(begin, end)` on
// each. Used while building tables from hundreds of thousands of strings; small counts run inline.
#pragma once

#include <algorithm>
#include <cstddef>
#include <system_error>
#include <thread>
#include <vector>

namespace rullama::tokenizer_internal {

// Below this a thread costs more than it saves (about 50 us to start, 10-30 ns per string).
inline constexpr size_t kMinItemsPerThread = 16384;
// The work is bound by memory latency; more threads gain little and start-up adds up.
inline constexpr size_t kMaxThreads = 8;

template <typename Body>
void ParallelRanges(size_t count, const Body& body) {
  const size_t hardware = std::max<size_t>(1, std::thread::hardware_concurrency());
  const size_t ranges =
      std::clamp<size_t>(count / kMinItemsPerThread, 1, std::min(hardware, kMaxThreads));
  const auto begin_of = [&](size_t i) { return count / ranges * i + std::min(i, count % ranges); };
  std::vector<std::jthread> threads;
  threads.reserve(ranges);
  size_t next = 1;
  try {
    for (; next < ranges; ++next) {
      threads.emplace_back([&body, &begin_of, i = next] { body(begin_of(i), begin_of(i + 1)); });
    }
  } catch (const std::system_error&) {
    // If the system gives no thread, this one does the rest.
  }
  body(begin_of(0), begin_of(1));
  if (next < ranges) body(begin_of(next), count);
}

}  // namespace rullama::tokenizer_internal
