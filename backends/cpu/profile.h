// Times of a plan's nodes, for `backend.options.profile`. A plan that is profiled lets its workers
// meet after every node, so that each has a time of its own; the whole takes a little longer.
#pragma once

#include <rullama/sdk/backend.h>

#include <chrono>
#include <map>
#include <string>
#include <vector>

namespace rullama::cpu {

// What an op is called in a profile: its kind, and the shape and type of a matrix it multiplies
// with.
[[nodiscard]] std::string ProfileName(const sdk::GraphView& graph, const rl_op& op);

// Not thread-safe: worker 0 keeps it.
class Profile {
 public:
  using Clock = std::chrono::steady_clock;

  void Start() { last_ = Clock::now(); }
  // The time since Start or the last call belongs to this name.
  void After(const std::string& name);
  // The slowest names first, in milliseconds of all executions.
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
