// What graphs are lowered for on a device of OpenCL.
#pragma once

#include <cstdint>

#include "backends/gpu/target.h"
#include "backends/opencl/instance.h"

namespace rullama::opencl {

// The form in which kernels are written: a work-group is one work-item of a CPU, which takes
// vectors; or many that share local memory; or many with inline PTX for NVIDIA's compiler.
enum class Form : uint8_t { kCpu, kGeneric, kNvidia };

// Choices of the options.
struct DriverOptions {
  Form form = Form::kGeneric;
  bool cache = false;         // binaries are kept on disk
  bool tensor_cores = false;  // are used; needs Form::kNvidia
};

// Whether the device multiplies matrices of 16 x 8 x 16 in f16 (mma.sync).
bool HasTensorCores(const Facts& facts);

gpu::Target TargetFor(const Facts& facts, const DriverOptions& options);

}  // namespace rullama::opencl
