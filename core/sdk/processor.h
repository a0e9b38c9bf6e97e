// The processor of this machine, for backends that compute on it. Thread-safe.
#pragma once

#include <algorithm>
#include <fstream>
#include <set>
#include <string>
#include <thread>

namespace rullama::sdk {

// Physical cores, at least 1: threads of one core share its load ports, so a second thread for each
// adds nothing to work that is limited by memory. Where the system does not say, all threads count.
inline int PhysicalCores() {
  std::set<std::string> cores;
  const unsigned logical = std::max(1U, std::thread::hardware_concurrency());
  for (unsigned cpu = 0; cpu < logical; ++cpu) {
    std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                       "/topology/thread_siblings_list");
    std::string siblings;
    if (!std::getline(file, siblings)) return static_cast<int>(logical);
    cores.insert(siblings);
  }
  return static_cast<int>(cores.size());
}

}  // namespace rullama::sdk
