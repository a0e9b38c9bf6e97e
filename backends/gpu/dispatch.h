// One dispatch of a plan: a kernel, its constants, its arguments, and the memory it touches.
#pragma once

#include <rullama/sdk/backend.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include "backends/gpu/kernels.h"
#include "backends/gpu/memory.h"

namespace rullama::gpu {

// A kernel and its specialisation constants by id (kernels.def). Constant 0 is the workgroup size.
struct PipelineKey {
  Shader shader;
  std::vector<uint32_t> constants;
  bool operator==(const PipelineKey&) const = default;
  bool operator<(const PipelineKey& other) const {
    return std::tie(shader, constants) < std::tie(other.shader, other.constants);
  }
};

struct Dispatch {
  // Maximum bytes of the push constants, without and with records (kernels.def).
  static constexpr uint32_t kPushBytes = 128;
  static constexpr uint32_t kMaxBytes = 320;

  struct Extent {
    uint32_t offset;  // in the push constants
    rl_dim dim;
    bool rows;  // without rows there is nothing to do
  };
  // Weight rows that may be split among any number of workgroups.
  struct Shares {
    uint64_t rows = 0;                // 0: there are none
    uint64_t bytes = 0, columns = 0;  // of a row; a gated product counts the bytes of both
    uint32_t first_groups = 0;        // workgroups before those that share the rows
    // Offset of the split in the push constants (matvec_dot.comp), or 0 if the shader derives it
    // from the number of workgroups.
    uint32_t offset = 0;
  };
  PipelineKey pipeline;
  std::array<std::byte, kMaxBytes> push{};
  uint32_t push_bytes = 0;
  uint32_t records_offset = 0;  // of records in the push constants; 0: there are none
  std::vector<uint32_t>
      pointers;  // offsets of addresses in the push constants, including null ones
  std::array<uint32_t, 3> groups{1, 1, 1};
  std::vector<Range> reads, writes;
  std::vector<Extent> extents;
  Shares shares;
  uint32_t op_index = RL_NO_OP;
};

}  // namespace rullama::gpu
