// The part of sdk::Device common to Vulkan and OpenCL. `Gpu` has Write and Read of its allocations,
// Wait, capabilities(), memory(), and the members that device_memory_objects.h requires.
//
// Thread safety: none; used under the host's lock on the device.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/gpu/device_memory_objects.h"
#include "backends/gpu/op_rows.h"
#include "backends/gpu/plan_builder.h"

namespace rullama::gpu {

template <typename Gpu>
class GpuDevice : public sdk::Device {
 public:
  std::vector<sdk::OpSupport> QueryOps(const sdk::GraphView& graph) override {
    return OpRows().Query(graph,
                          DeviceLimits{gpu_.capabilities().float64, tuning_.max_piece_bytes});
  }

  std::string DescribeGraph(const sdk::GraphView& graph) override {
    return PrintFused(graph, Fuse(graph, TuningOf(graph)));
  }

  sdk::WeightLayout LayoutWeight(const rl_weight_desc& desc) override {
    return {false, ShapeOf(static_cast<DType>(desc.dtype), {desc.dims, desc.rank}).bytes()};
  }

  std::unique_ptr<sdk::Weight> CreateWeight(const rl_weight_desc& desc) override {
    return std::make_unique<OwnedWeight<Gpu>>(gpu_, desc);
  }

  std::unique_ptr<sdk::Buffer> CreateBuffer(uint64_t bytes, rl_buffer_usage usage) override {
    return std::make_unique<OwnedBuffer<Gpu>>(gpu_, bytes, usage);
  }

  void Write(sdk::Buffer& buffer, uint64_t offset, std::span<const std::byte> data) override {
    gpu_.Write(Checked(buffer, offset, data.size()), offset, data);
  }

  void Read(sdk::Buffer& buffer, uint64_t offset, std::span<std::byte> data) override {
    gpu_.Read(Checked(buffer, offset, data.size()), offset, data);
    CheckMore();
  }

  void Wait() override {
    gpu_.Wait();
    CheckMore();
  }

 protected:
  // `arguments`: of the constructor of Gpu.
  template <typename... Arguments>
  explicit GpuDevice(const Tuning& tuning, Arguments&&... arguments)
      : gpu_(std::forward<Arguments>(arguments)...), tuning_(tuning) {
    tuning_.max_piece_bytes = gpu_.memory().max_piece() - kWeightSlack;
  }

  // The parameters with which a graph is lowered.
  [[nodiscard]] virtual Tuning TuningOf(const sdk::GraphView& /*graph*/) const { return tuning_; }
  // Called after each wait. Throws any further error of the backend.
  virtual void CheckMore() const {}
  [[nodiscard]] Gpu& gpu() { return gpu_; }
  [[nodiscard]] const Tuning& tuning() const { return tuning_; }

 private:
  static const auto& Checked(sdk::Buffer& buffer, uint64_t offset, uint64_t size) {
    const auto& memory = static_cast<OwnedBuffer<Gpu>&>(buffer);
    if (offset > memory.size() || size > memory.size() - offset) {
      throw sdk::Error(RL_INVALID_ARGUMENT,
                       "copy outside the buffer of " + std::to_string(memory.size()) + " bytes");
    }
    return memory.memory();
  }

  Gpu gpu_;
  Tuning tuning_;
};

}  // namespace rullama::gpu
