// The processor of this machine, for backends that compute on it. Thread-safe.
#pragma once

#include <sched.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <set>
#include <string>
#include <thread>

namespace rullama::sdk {

// Physical cores that this process may run on (its affinity mask, which taskset, ctest and
// containers set), at least 1: threads of one core share its load ports, so a second thread for
// each adds nothing to work that is limited by memory. Where the system does not say which threads
// share a core, all count.
inline int PhysicalCores() {
  cpu_set_t allowed;
  const bool masked = sched_getaffinity(0, sizeof allowed, &allowed) == 0;
  std::set<std::string> cores;
  for (std::size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    const bool may_run =
        masked ? CPU_ISSET(cpu, &allowed) : cpu < std::thread::hardware_concurrency();
    if (!may_run) continue;
    std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                       "/topology/thread_siblings_list");
    std::string siblings;
    cores.insert(std::getline(file, siblings) ? siblings : std::to_string(cpu));
  }
  return static_cast<int>(std::max<std::size_t>(1, cores.size()));
}

}  // namespace rullama::sdk
