// When the workers of a plan ran its ops, for rl_plugin_v1::plan_times. All memory is obtained when
// the plan is compiled.
#pragma once

#include <rullama/sdk/backend.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace rullama::cpu {

// Thread safety: each worker adds to its own records; Start() and Gather() while no worker runs.
class OpTimes {
 public:
  // At most `nodes` records of each worker in an execution, of ops below `ops`.
  OpTimes(uint32_t ops, size_t nodes, int workers);

  // Drops the records of the last execution.
  void Start();
  void Add(int worker, uint32_t op, uint64_t begin, uint64_t end) {
    Worker& of = workers_[static_cast<size_t>(worker)];
    records_[of.first + of.count++] = {&ops_[op], 1, static_cast<uint32_t>(worker), begin, end};
  }
  // The records, worker by worker. No more can be added until Start().
  [[nodiscard]] std::span<const rl_op_time> Gather();

 private:
  // On cache lines of their own, because each is written by another thread.
  struct alignas(64) Worker {
    size_t first = 0;  // of its records in records_
    size_t count = 0;
  };
  std::vector<uint32_t> ops_;  // 0, 1, ...: records point into it
  std::vector<rl_op_time> records_;
  std::vector<Worker> workers_;
  size_t gathered_ = 0;
  bool is_gathered_ = false;
};

}  // namespace rullama::cpu
