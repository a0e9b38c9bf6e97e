// The target of lowering for a device of WebGPU.
#pragma once

#include "backends/gpu/target.h"
#include "backends/webgpu/instance.h"

namespace rullama::webgpu {

// The backend has the options of all GPU backends alone.
struct DriverOptions {};

gpu::Target TargetFor(const Facts& facts);

}  // namespace rullama::webgpu
