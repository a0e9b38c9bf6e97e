#include "backends/gpu/device_objects.h"

#include <algorithm>
#include <utility>

#include "backends/gpu/weights.h"

namespace rullama::gpu {

OwnedBuffer::OwnedBuffer(Driver& driver, BlockMemory& blocks, uint64_t bytes, rl_buffer_usage usage)
    : OwnedBuffer(
          driver, bytes, usage,
          blocks.Allocate(bytes, usage == RL_BUFFER_IO ? Residence::kShared : Residence::kDevice)) {
}

OwnedBuffer::OwnedBuffer(Driver& driver, uint64_t bytes, rl_buffer_usage usage, Allocation memory)
    : DeviceBuffer(memory.address(), bytes), driver_(driver), memory_(std::move(memory)) {
  if (usage == RL_BUFFER_STATE) driver_.FillZero(memory_);
}

OwnedWeight::OwnedWeight(Driver& driver, BlockMemory& blocks, const rl_weight_desc& desc)
    : DeviceWeight(desc), driver_(driver) {
  const auto* const file = static_cast<const std::byte*>(desc.data);
  driver_.Wait();  // the host writes to mapped memory that running work may still use
  for (const WeightRows& rows : PiecesOf(shape(), blocks.max_piece() - kWeightSlack)) {
    WeightShape part = shape();
    part.rows = rows.count;
    const Allocation& memory =
        memory_.emplace_back(blocks.Allocate(std::max<uint64_t>(part.bytes(), 1) + kWeightSlack));
    AddPiece({rows, memory.address()});
    RepackAll(part, file + rows.first * part.file_row, memory.mapped(),
              [&](uint64_t offset, std::span<const std::byte> bytes) {
                driver_.Write(memory, offset, bytes);
              });
  }
}

DeviceAddress PlanMemory::NewMemory(uint64_t bytes) {
  return memory_.emplace_back(blocks_.Allocate(bytes)).address();
}

void PlanMemory::Fill(DeviceAddress address, std::span<const std::byte> bytes) {
  driver_.Write(*std::ranges::find(memory_, address, &Allocation::address), 0, bytes);
}

}  // namespace rullama::gpu
