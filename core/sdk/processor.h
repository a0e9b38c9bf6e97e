// The processor of this machine, for backends that compute on it. Thread-safe.
#pragma once

#if defined(__linux__)
#include <sched.h>
#endif

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace rullama::sdk {

namespace internal {

// Whether this process may run on each processor of the machine, as its affinity mask says, which
// taskset, ctest and containers set. Where the system has none, all that the library counts.
inline std::vector<bool> AffinityMask() {
#if defined(__linux__)
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) {
    std::vector<bool> mask;
    mask.reserve(CPU_SETSIZE);
    for (std::size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) mask.push_back(CPU_ISSET(cpu, &allowed));
    return mask;
  }
#endif
  return std::vector<bool>(std::thread::hardware_concurrency(), true);
}

}  // namespace internal

// Processors that this process may run on, at least 1.
inline int AllowedProcessors() {
  const std::vector<bool> mask = internal::AffinityMask();
  return static_cast<int>(std::max<std::ptrdiff_t>(1, std::count(mask.begin(), mask.end(), true)));
}

// Physical cores that this process may run on, at least 1: threads of one core share its load
// ports, so a second thread for each adds nothing to work that is limited by memory. Where the
// system does not say which threads share a core, all count.
inline int PhysicalCores() {
  const std::vector<bool> mask = internal::AffinityMask();
  std::set<std::string> cores;
  for (std::size_t cpu = 0; cpu < mask.size(); ++cpu) {
    if (!mask[cpu]) continue;
    std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                       "/topology/thread_siblings_list");
    std::string siblings;
    cores.insert(std::getline(file, siblings) ? siblings : std::to_string(cpu));
  }
  return static_cast<int>(std::max<std::size_t>(1, cores.size()));
}

}  // namespace rullama::sdk
