#include "backends/gpu/device.h"

#include <utility>

#include "backends/gpu/device_objects.h"
#include "backends/gpu/fuse.h"
#include "backends/gpu/op_rows.h"
#include "backends/gpu/plan.h"
#include "backends/gpu/tile_tuning.h"
#include "backends/gpu/weights.h"

namespace rullama::gpu {
namespace {

const Allocation& CheckedMemory(sdk::Buffer& buffer, uint64_t offset, uint64_t size) {
  const auto& memory = static_cast<OwnedBuffer&>(buffer);
  if (offset > memory.size() || size > memory.size() - offset) {
    throw sdk::Error(RL_INVALID_ARGUMENT,
                     "copy outside the buffer of " + std::to_string(memory.size()) + " bytes");
  }
  return memory.memory();
}

}  // namespace

GpuDevice::GpuDevice(std::unique_ptr<Driver> driver, const CommonSettings& settings)
    : driver_(std::move(driver)),
      blocks_(*driver_, settings.weight_piece),
      kernels_(*driver_),
      target_(driver_->target()),
      profile_(settings.profile) {
  target_.can.max_piece_bytes = blocks_.max_piece() - kWeightSlack;
  if (settings.tune) TuneTiles(*driver_, blocks_, kernels_, target_);
  tile_times_ = KeptTileTimes(*driver_);
  if (!tile_times_.empty()) target_.prefers.tile_times = tile_times_;
  target_.prefers.precise_products = settings.precise_products;
  if (profile_ && !target_.can.tells_times) {
    driver_->host().Log(RL_LOG_WARNING,
                        "option profile is 'on', but the device does not tell any times");
  }
}

std::vector<sdk::OpSupport> GpuDevice::QueryOps(const sdk::GraphView& graph) {
  return OpRows().Query(graph, DeviceLimits{target_.can.float64, target_.can.max_piece_bytes,
                                            target_.can.has_kernels_for});
}

std::string GpuDevice::DescribeGraph(const sdk::GraphView& graph) {
  return PrintFused(graph, Fuse(graph, LoweringOf(*driver_, target_, profile_, graph).target));
}

sdk::WeightLayout GpuDevice::LayoutWeight(const rl_weight_desc& desc) {
  return {false, ShapeOf(static_cast<DType>(desc.dtype), {desc.dims, desc.rank}).bytes()};
}

std::unique_ptr<sdk::Weight> GpuDevice::CreateWeight(const rl_weight_desc& desc) {
  const AskingHost::Scope asking(driver_->asking());
  return std::make_unique<OwnedWeight>(*driver_, blocks_, desc);
}

std::unique_ptr<sdk::Buffer> GpuDevice::CreateBuffer(uint64_t bytes, rl_buffer_usage usage) {
  const AskingHost::Scope asking(driver_->asking());
  return std::make_unique<OwnedBuffer>(*driver_, blocks_, bytes, usage);
}

void GpuDevice::Write(sdk::Buffer& buffer, uint64_t offset, std::span<const std::byte> data) {
  const AskingHost::Scope asking(driver_->asking());
  driver_->Write(CheckedMemory(buffer, offset, data.size()), offset, data);
}

void GpuDevice::Read(sdk::Buffer& buffer, uint64_t offset, std::span<std::byte> data) {
  const AskingHost::Scope asking(driver_->asking());
  driver_->Read(CheckedMemory(buffer, offset, data.size()), offset, data);
  driver_->CheckMore();
}

std::unique_ptr<sdk::Plan> GpuDevice::Compile(const sdk::GraphView& graph) {
  const AskingHost::Scope asking(driver_->asking());
  return std::make_unique<GpuPlan>(*driver_, blocks_, kernels_, target_, profile_, graph);
}

void GpuDevice::Wait() {
  driver_->Wait();
  driver_->CheckMore();
}

}  // namespace rullama::gpu
