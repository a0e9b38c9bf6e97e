// The device that the host sees, over the driver of any API (driver.h).
//
// Thread safety: none; used under the host's lock on the device.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backends/gpu/block_memory.h"
#include "backends/gpu/driver.h"
#include "backends/gpu/kernel_cache.h"
#include "backends/gpu/options.h"
#include "backends/gpu/target.h"

namespace rullama::gpu {

class GpuDevice final : public sdk::Device {
 public:
  GpuDevice(std::unique_ptr<Driver> driver, const CommonSettings& settings);

  std::vector<sdk::OpSupport> QueryOps(const sdk::GraphView& graph) override;
  std::string DescribeGraph(const sdk::GraphView& graph) override;
  sdk::WeightLayout LayoutWeight(const rl_weight_desc& desc) override;
  std::unique_ptr<sdk::Weight> CreateWeight(const rl_weight_desc& desc) override;
  std::unique_ptr<sdk::Buffer> CreateBuffer(uint64_t bytes, rl_buffer_usage usage) override;
  void Write(sdk::Buffer& buffer, uint64_t offset, std::span<const std::byte> data) override;
  void Read(sdk::Buffer& buffer, uint64_t offset, std::span<std::byte> data) override;
  std::unique_ptr<sdk::Plan> Compile(const sdk::GraphView& graph) override;
  void Wait() override;

 private:
  std::unique_ptr<Driver> driver_;
  BlockMemory blocks_;
  KernelCache kernels_;
  std::vector<TileTimes> tile_times_;  // of target_, if some were kept
  Target target_;
  bool profile_;
};

}  // namespace rullama::gpu
