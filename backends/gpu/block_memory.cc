#include "backends/gpu/block_memory.h"

#include <algorithm>
#include <string>

#include "backends/gpu/driver.h"
#include "backends/gpu/out_of_memory.h"
#include "backends/gpu/weights.h"

namespace rullama::gpu {
namespace {

// Allocations begin at multiples of this: a cache line of GPUs, the alignment of copies, and the
// longest vector of kernels.
constexpr uint64_t kGranularity = 256;
constexpr uint64_t kBlockBytes = uint64_t{64} << 20;

}  // namespace

uint64_t MaxBufferBytes(uint64_t max_allocation) {
  return MaxPiece(0, max_allocation, kGranularity);
}

BlockMemory::BlockMemory(Driver& driver, uint64_t weight_piece)
    : driver_(driver),
      max_piece_(MaxPiece(weight_piece, driver.Memory().max_allocation, kGranularity)) {}

Allocation BlockMemory::Allocate(uint64_t bytes, Residence residence) {
  const MemoryFacts memory = driver_.Memory();
  const auto fail = [&](const std::string& why) {
    return NoRoom(bytes, memory.total, memory.free, why);
  };
  if (memory.total > 0 && bytes > memory.total) throw fail("");
  // Kernels read whole vectors at the end of a row.
  const uint64_t size = RoundUp(bytes, kGranularity) + kGranularity;
  auto& blocks = blocks_[memory.has_shared ? residence : Residence::kDevice];
  for (const auto& block : blocks) {
    if (const auto offset = block->free.Take(size)) return {block.get(), *offset, size};
  }
  if (size > memory.max_allocation) {
    throw fail("one allocation may have " + SizeText(memory.max_allocation));
  }
  try {
    const uint64_t block_bytes = std::min(std::max(size, kBlockBytes), memory.max_allocation);
    MemoryBlock& block = *blocks.emplace_back(driver_.NewBlock(block_bytes, residence));
    return {&block, *block.free.Take(size), size};
  } catch (const sdk::Error& error) {
    if (error.code() != RL_OUT_OF_MEMORY) throw;
    throw fail(error.what());
  }
}

}  // namespace rullama::gpu
