// An opened WebGPU device: its queue, memory and transfers. Kernels get an address as a binding and
// an offset in it (wgsl.h); on the host each buffer has addresses of its own (gpu/memory.h), which
// nothing but this class can turn into those.
//
// Thread safety: none but for Compile(); used under the host's lock on the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "backends/gpu/driver.h"
#include "backends/webgpu/instance.h"
#include "backends/webgpu/kernels.h"
#include "backends/webgpu/target.h"

namespace rullama::webgpu {

// Errors that WebGPU reports to callbacks, and not where they arise.
class Reports {
 public:
  void Note(rl_code code, std::string text);
  // Throws the first one since the last call; a lost device stays lost.
  void Check(const char* call);

 private:
  std::mutex mutex_;
  rl_code code_ = RL_OK;
  std::string text_;
  bool lost_ = false;
};

struct Staging;

// Where an address lies.
struct Place {
  WGPUBuffer buffer = nullptr;
  uint64_t size = 0, offset = 0;
};

class WebGpuDriver final : public gpu::Driver {
 public:
  WebGpuDriver(const Api& api, const PhysicalDevice& physical, const sdk::Host& host);
  ~WebGpuDriver() override;

  [[nodiscard]] const Api& api() const { return api_; }
  [[nodiscard]] WGPUDevice device() const { return device_.get(); }
  [[nodiscard]] WGPUQueue queue() const { return queue_.get(); }
  [[nodiscard]] const Facts& facts() const { return physical_.facts; }
  // The place of an address inside an allocation that lives.
  [[nodiscard]] Place PlaceOf(gpu::DeviceAddress address) const;
  // Errors of the calls so far: RL_OUT_OF_MEMORY, RL_DEVICE_LOST or RL_INTERNAL.
  void Check(const char* call) { reports_->Check(call); }
  // The layout of kernels with this number of buffers in addition to their arguments.
  const Layout& LayoutFor(uint32_t buffers);
  Owned<WGPUBuffer> NewBuffer(uint64_t bytes, WGPUBufferUsage usage);

  // WebGPU does not tell how much memory there is.
  [[nodiscard]] gpu::MemoryFacts Memory() const override {
    return {.max_allocation = facts().max_allocation};
  }
  std::unique_ptr<gpu::MemoryBlock> NewBlock(uint64_t bytes, gpu::Residence residence) override;
  void Write(const gpu::Allocation& to, uint64_t offset, std::span<const std::byte> data) override;
  void Read(const gpu::Allocation& from, uint64_t offset, std::span<std::byte> data) override;
  void FillZero(const gpu::Allocation& memory) override;
  std::unique_ptr<gpu::Kernel> Compile(const gpu::PipelineKey& key) override {
    return std::make_unique<WebGpuKernel>(key);
  }
  // WebGPU hands out nothing of what it has compiled; drivers of Vulkan keep it themselves.
  [[nodiscard]] std::vector<std::byte> CacheData(const gpu::Kernels& /*kernels*/) override {
    return {};
  }
  [[nodiscard]] std::string CacheName() const override { return {}; }
  void LoadCache(std::span<const std::byte> /*saved*/) override {}
  std::unique_ptr<gpu::Commands> Record(const gpu::Recording& recording) override;
  void Submit(gpu::Commands& commands, const gpu::Readback& readback) override;
  void TimesOf(gpu::Commands& /*commands*/, std::vector<gpu::DispatchTime>& /*times*/) override {}

 private:
  class Block;

  // Bytes on their way to `to`: `skipped` bytes of the staging buffer are before them.
  struct Landing {
    std::shared_ptr<Staging> staging;
    uint64_t skipped = 0;
    std::span<std::byte> to;
  };

  void Finish() override;
  [[nodiscard]] Owned<WGPUDevice> NewDevice() const;
  Owned<WGPUCommandEncoder> NewEncoder();
  // Copies the words that hold these bytes; through `kept`, or through a new buffer, which is kept,
  // if it is in use or has another size.
  Landing CopyOut(WGPUCommandEncoder encoder, const gpu::Readback& bytes,
                  std::shared_ptr<Staging>& kept);
  void Submit(WGPUCommandEncoder encoder);
  // Waits until they have landed.
  void Land(std::vector<Landing> landings);

  const Api& api_;
  const PhysicalDevice physical_;
  const std::unique_ptr<Reports> reports_ = std::make_unique<Reports>();
  Owned<WGPUDevice> device_;
  Owned<WGPUQueue> queue_;
  std::map<uint32_t, Layout> layouts_;                 // by number of buffers
  std::map<gpu::DeviceAddress, const Block*> blocks_;  // by first address
  gpu::DeviceAddress next_address_;
  uint64_t written_ = 0;  // bytes since work was last submitted
  std::vector<Landing> landings_;
};

}  // namespace rullama::webgpu
