#include "backends/opencl/objects.h"

#include <algorithm>

namespace rullama::opencl {
namespace {

// OpenCL names no limit but that of the number of work-items; NVIDIA's devices have these.
constexpr uint32_t kMostGroupsX = 0x7FFFFFFF;
constexpr uint32_t kMostGroups = 65535;

}  // namespace

OpenClBuffer::OpenClBuffer(Gpu& gpu, uint64_t bytes, rl_buffer_usage usage)
    : OpenClBuffer(gpu, bytes, usage, gpu.memory().Allocate(bytes)) {}

OpenClBuffer::OpenClBuffer(Gpu& gpu, uint64_t bytes, rl_buffer_usage usage, Allocation memory)
    : DeviceBuffer(memory.address(), bytes), gpu_(gpu), memory_(std::move(memory)) {
  if (usage == RL_BUFFER_STATE) gpu_.FillZero(memory_);
}

OpenClBuffer::~OpenClBuffer() { gpu_.WaitQuietly(); }

OpenClWeight::OpenClWeight(Gpu& gpu, const rl_weight_desc& desc) : DeviceWeight(desc), gpu_(gpu) {
  MakePieces(
      gpu_.memory().most_piece(),
      [&](uint64_t bytes) -> Allocation& {
        return memory_.emplace_back(gpu_.memory().Allocate(bytes));
      },
      [&](Allocation& memory, const gpu::WeightShape& part, const std::byte* file) {
        gpu::RepackAll(part, file, nullptr, [&](uint64_t offset, std::span<const std::byte> rows) {
          gpu_.Write(memory, offset, rows);
        });
      });
}

OpenClWeight::~OpenClWeight() { gpu_.WaitQuietly(); }

gpu::DeviceAddress PlanMemory::NewMemory(uint64_t bytes) {
  memory_.push_back(gpu_.memory().Allocate(bytes));
  return memory_.back().address();
}

void PlanMemory::Fill(gpu::DeviceAddress address, std::span<const std::byte> bytes) {
  gpu_.Write(*std::ranges::find(memory_, address, &Allocation::address), 0, bytes);
}

uint32_t PlanMemory::MostGroups(uint32_t axis) const {
  return axis == 0 ? kMostGroupsX : kMostGroups;
}

}  // namespace rullama::opencl
