// Counters of the runtime for one model: work done and memory held. Part of the public interface.
#pragma once

#include <cstdint>

namespace rullama {

struct SessionStats {
  uint64_t steps = 0;
  uint64_t plans = 0;         // compiled by the session
  uint64_t compilations = 0;  // this and the next three are reported by the plugins
  uint64_t allocations = 0;
  uint64_t recordings = 0;
  uint64_t dispatches = 0;
  // Kernels that are compiled at the moment, while steps run without them; 0 in the end.
  uint64_t pending = 0;
  // Bytes on devices.
  uint64_t weight_bytes = 0;       // held by the devices, without the file mapping
  uint64_t weight_file_bytes = 0;  // read in place
  uint64_t state_bytes = 0;
  uint64_t arena_bytes = 0;
  uint64_t io_bytes = 0;
  uint64_t workspace_bytes = 0;
};

}  // namespace rullama
