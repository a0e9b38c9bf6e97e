// The device that the host sees, over a driver (driver.h).
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
#include "backends/gpu/tuning.h"

namespace rullama::gpu {

class GpuDevice : public sdk::Device {
 public:
  std::vector<sdk::OpSupport> QueryOps(const sdk::GraphView& graph) override;
  std::string DescribeGraph(const sdk::GraphView& graph) override;
  sdk::WeightLayout LayoutWeight(const rl_weight_desc& desc) override;
  std::unique_ptr<sdk::Weight> CreateWeight(const rl_weight_desc& desc) override;
  std::unique_ptr<sdk::Buffer> CreateBuffer(uint64_t bytes, rl_buffer_usage usage) override;
  void Write(sdk::Buffer& buffer, uint64_t offset, std::span<const std::byte> data) override;
  void Read(sdk::Buffer& buffer, uint64_t offset, std::span<std::byte> data) override;
  void Wait() override;

 protected:
  // `weight_piece`: the option of that name.
  GpuDevice(const Tuning& tuning, std::unique_ptr<Driver> driver, uint64_t weight_piece);

  // The parameters with which a graph is lowered.
  [[nodiscard]] virtual Tuning TuningOf(const sdk::GraphView& /*graph*/) const { return tuning_; }
  [[nodiscard]] Driver& driver() { return *driver_; }
  [[nodiscard]] BlockMemory& blocks() { return blocks_; }
  [[nodiscard]] KernelCache& kernels() { return kernels_; }
  [[nodiscard]] const Tuning& tuning() const { return tuning_; }

 private:
  std::unique_ptr<Driver> driver_;
  BlockMemory blocks_;
  KernelCache kernels_;
  Tuning tuning_;
};

}  // namespace rullama::gpu
