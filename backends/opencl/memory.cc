#include "backends/opencl/memory.h"

#include <algorithm>
#include <utility>

#include "backends/gpu/out_of_memory.h"

namespace rullama::opencl {
namespace {

// Allocations begin at multiples of this: a cache line of GPUs, and the longest vector of OpenCL.
constexpr uint64_t kGranularity = 256;
// Small allocations share a block, so that few buffers exist. Larger ones have their own.
constexpr uint64_t kBlockBytes = uint64_t{64} << 20;
// Addresses of blocks are multiples of this, so that no pointer past the end of one block points
// into another.
constexpr gpu::DeviceAddress kFirstAddress = uint64_t{1} << 32;

}  // namespace

Memory::Memory(const Api& api, const Capabilities& capabilities, cl_context context,
               cl_command_queue queue)
    : api_(api),
      capabilities_(capabilities),
      context_(context),
      queue_(queue),
      next_address_(kFirstAddress) {}
Memory::~Memory() = default;

MemoryBlock& Memory::NewBlock(uint64_t bytes) {
  cl_int result = CL_SUCCESS;
  Owned<cl_mem> buffer =
      Own(api_.CreateBuffer(context_, CL_MEM_READ_WRITE, bytes, nullptr, &result),
          api_.ReleaseMemObject);
  Check(result, "clCreateBuffer");
  // Drivers put off the work until a buffer is used, and then fail where nobody expects it.
  cl_mem handle = buffer.get();
  Check(api_.EnqueueMigrateMemObjects(queue_, 1, &handle, CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED,
                                      0, nullptr, nullptr),
        "clEnqueueMigrateMemObjects");
  const gpu::DeviceAddress address = next_address_;
  next_address_ += gpu::RoundUp(bytes, kFirstAddress) + kFirstAddress;
  auto& block = blocks_[address];
  block.reset(new MemoryBlock{std::move(buffer), address, gpu::FreeRanges(bytes)});
  return *block;
}

uint64_t MaxBufferBytes(uint64_t max_allocation) {
  return gpu::MaxPiece(0, max_allocation, kGranularity);
}

uint64_t Memory::max_piece() const {
  const auto& can = capabilities_;
  return gpu::MaxPiece(can.weight_piece, can.max_allocation, kGranularity);
}

Allocation Memory::Allocate(uint64_t bytes) {
  const uint64_t total = capabilities_.memory;
  // Kernels read whole vectors at the end of a row.
  const uint64_t size = bytes > total ? 0 : gpu::RoundUp(bytes, kGranularity) + kGranularity;
  if (size == 0) throw gpu::NoRoom(bytes, total, 0, "");
  for (const auto& [address, block] : blocks_) {
    if (const auto offset = block->free.Take(size)) return {block.get(), *offset, size};
  }
  if (size > capabilities_.max_allocation) {
    throw gpu::NoRoom(bytes, total, 0,
                      "one allocation may have " + gpu::SizeText(capabilities_.max_allocation));
  }
  try {
    const uint64_t block_bytes =
        std::min(std::max(size, kBlockBytes), capabilities_.max_allocation);
    MemoryBlock& block = NewBlock(block_bytes);
    return {&block, *block.free.Take(size), size};
  } catch (const sdk::Error& error) {
    const bool no_room =
        error.code() == RL_OUT_OF_MEMORY || error.device_code() == CL_OUT_OF_RESOURCES;
    if (!no_room) throw;
    throw gpu::NoRoom(bytes, total, 0, error.what());
  }
}

Place Memory::PlaceOf(gpu::DeviceAddress address) const {
  const auto after = blocks_.upper_bound(address);
  if (after == blocks_.begin()) throw sdk::Error(RL_INTERNAL, "an address of no block");
  const MemoryBlock& block = *std::prev(after)->second;
  return {block.buffer.get(), address - block.address};
}

}  // namespace rullama::opencl
