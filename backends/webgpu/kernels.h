// A kernel and its pipelines: one for each way in which its addresses share buffers.
//
// Thread safety: none; used under the host's lock on the device.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "backends/gpu/driver.h"
#include "backends/webgpu/api.h"

namespace rullama::webgpu {

class WebGpuDriver;

// Bytes of arguments that a kernel sees: those of a dispatch, and the address of its records.
inline constexpr uint32_t kArgumentBytes = gpu::Dispatch::kMaxBytes + 16;

struct Layout {
  Owned<WGPUBindGroupLayout> group;
  Owned<WGPUPipelineLayout> pipeline;
};
// The layout of a kernel with this number of buffers, and its arguments at an offset that each
// dispatch sets.
Layout MakeLayout(const Api& api, WGPUDevice device, uint32_t buffers);

class WebGpuKernel final : public gpu::Kernel {
 public:
  explicit WebGpuKernel(gpu::PipelineKey key) : key_(std::move(key)) {}

  // `bindings`: of addresses among the arguments, by their offsets (wgsl.h). Errors: those of the
  // compiler, with its text.
  WGPUComputePipeline PipelineFor(WebGpuDriver& driver,
                                  const std::map<uint32_t, uint32_t>& bindings,
                                  uint32_t buffers) const;

 private:
  using Variant = std::pair<std::map<uint32_t, uint32_t>, uint32_t>;
  gpu::PipelineKey key_;
  mutable std::map<Variant, Owned<WGPUComputePipeline>> pipelines_;  // made when first needed
};

}  // namespace rullama::webgpu
