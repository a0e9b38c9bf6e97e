// Dispatches with their pipelines, bindings and arguments in place, encoded anew for each step:
// WebGPU runs encoded commands once.
//
// Thread safety: none; used under the host's lock on the device.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "backends/gpu/driver.h"
#include "backends/webgpu/api.h"

namespace rullama::webgpu {

class WebGpuDriver;

// A buffer that the host reads what was copied to it from.
struct Staging {
  Staging(Owned<WGPUBuffer> its_buffer, uint64_t size)
      : buffer(std::move(its_buffer)), bytes(size) {}

  Owned<WGPUBuffer> buffer;
  uint64_t bytes;
  bool mapped = false;
};

class WebGpuCommands final : public gpu::Commands {
 public:
  WebGpuCommands(WebGpuDriver& driver, const gpu::Recording& recording);

  // Appends all of it.
  void Encode(const Api& api, WGPUCommandEncoder encoder) const;
  // For what is read after it; null before the first time. Kept from step to step.
  [[nodiscard]] std::shared_ptr<Staging>& staging() { return staging_; }

 private:
  struct Launch {
    WGPUComputePipeline pipeline = nullptr;
    WGPUBindGroup bindings = nullptr;
    uint32_t arguments = 0;  // offset in arguments_
    std::array<uint32_t, 3> groups{};
  };
  void Add(WebGpuDriver& driver, const gpu::KernelCache& kernels, const gpu::Dispatch& dispatch,
           std::span<std::byte> arguments);
  WGPUBindGroup BindingsOf(WebGpuDriver& driver, const std::vector<WGPUBuffer>& buffers);

  uint32_t stride_;  // from the arguments of a dispatch to those of the next one
  Owned<WGPUBuffer> arguments_;
  std::map<std::vector<WGPUBuffer>, Owned<WGPUBindGroup>> bindings_;
  std::vector<Launch> launches_;
  std::shared_ptr<Staging> staging_;
};

}  // namespace rullama::webgpu
