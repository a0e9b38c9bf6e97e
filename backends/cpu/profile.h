// Execution times of a plan's ops, for `backend.options.profile`. A profiled plan has a barrier
// after every node, so that nodes are timed separately; this makes the plan slightly slower.
#pragma once

#include <rullama/sdk/backend.h>

#include <chrono>
#include <map>
#include <string>
#include <vector>

namespace rullama::cpu {

// The name of an op in a profile: its kind and the type and shape of its first weight matrix.
[[nodiscard]] std::string ProfileName(const sdk::GraphView& graph, const rl_op& op);

// Not thread-safe: only worker 0 uses it.
class Profile {
 public:
  using Clock = std::chrono::steady_clock;

  void Start() { last_ = Clock::now(); }
  // Adds the time since Start() or the last call to this name.
  void After(const std::string& name);
  // One line per name, slowest first, with the milliseconds of all executions.
  [[nodiscard]] std::vector<std::string> Report(uint64_t executions) const;

 private:
  struct Entry {
    double seconds = 0;
    uint64_t nodes = 0;
  };
  Clock::time_point last_;
  std::map<std::string, Entry> entries_;
};

}  // namespace rullama::cpu
