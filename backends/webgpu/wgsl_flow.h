// Where invocations of a workgroup have to agree: WGSL refuses barriers in branches on values that
// invocations might not have in common, and does not know which values of memory they have.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "backends/webgpu/spirv.h"

namespace rullama::webgpu {

// The blocks of a function that constants leave, each with the blocks that may follow it.
using Flow = std::map<uint32_t, std::vector<uint32_t>>;

// The functions with a barrier, also in functions that they call. `flows`: by function.
std::set<uint32_t> FunctionsWithBarriers(const Module& module,
                                         const std::map<uint32_t, Flow>& flows);

// The blocks that end with a branch that a barrier depends on, whose condition might be taken for
// one that invocations do not have in common. SPIR-V promises that they have it in common.
std::set<uint32_t> SharedBranches(const Module& module, const Function& function, const Flow& flow,
                                  const std::set<uint32_t>& with_barriers);

}  // namespace rullama::webgpu
