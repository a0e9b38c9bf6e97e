// When the dispatches of a plan ran, for rl_plugin_v1::plan_times: from the device's clock to the
// host's.
//
// Thread safety: none.
#pragma once

#include <rullama/sdk/backend.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace rullama::gpu {

class DispatchTimes {
 public:
  // `dispatches`: the most of an execution.
  explicit DispatchTimes(size_t dispatches) { records_.reserve(dispatches); }

  // Drops the records. `submitted`: when the next execution was handed to the device, by
  // sdk::NowNanoseconds().
  void Start(uint64_t submitted);
  // Adds the next dispatch of the queue, in nanoseconds of the device's clock. The first of an
  // execution is taken to begin when it was submitted. `ops` are kept by reference.
  void Add(std::span<const uint32_t> ops, uint64_t begin, uint64_t end);
  [[nodiscard]] std::span<const rl_op_time> records() const { return records_; }

 private:
  std::vector<rl_op_time> records_;
  uint64_t submitted_ = 0;
  uint64_t device_begin_ = 0;  // of the first dispatch, by the device's clock
};

}  // namespace rullama::gpu
