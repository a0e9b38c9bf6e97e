// Shaders compiled as tasks (common.glsl) become functions of one shader.
//
// Thread safety: all functions are pure.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "backends/vulkan/instructions.h"

namespace rullama::vulkan {

// A shader with these values in place of its constants 0, 1, ..., and without the code they leave
// unused. Constant 0, which all shaders have, is the size of the workgroup. Throws
// sdk::Error(RL_INTERNAL) if the code is not SPIR-V.
Spirv WithConstants(std::span<const uint32_t> code, std::span<const uint32_t> constants);

inline const std::atomic<bool> kNeverStop = false;

struct Joined {
  Spirv code;
  uint32_t shared_bytes = 0;  // of shared memory: tasks use the same
};

// `driver` with the main functions of `tasks` in place of its function RunTask, which then calls
// number `task_kind`. Variables task_push, task_group and task_groups are the driver's. All come
// from WithConstants, with `threads` as their constant 0: the invocations of a workgroup. Throws
// sdk::Error(RL_INTERNAL) for other shaders, and RL_CANCELLED soon after `stop` is set.
Joined Join(const Spirv& driver, std::span<const Spirv> tasks, uint32_t threads,
            const std::atomic<bool>& stop = kNeverStop);

// Throws sdk::Error(RL_CANCELLED) if `stop` is set.
void CheckStop(const std::atomic<bool>& stop);

}  // namespace rullama::vulkan
