// Device memory: ranges of large blocks, each of which is one buffer of OpenCL's. Kernels get a
// buffer and an offset; on the host each block has addresses of its own (gpu/memory.h), which
// nothing but this class can turn into those.
//
// Thread safety: none; used under the host's lock on the device.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "backends/gpu/block_range.h"
#include "backends/opencl/instance.h"

namespace rullama::opencl {

// One buffer of OpenCL's and its free ranges.
struct MemoryBlock {
  Owned<cl_mem> buffer;
  gpu::DeviceAddress address;
  gpu::FreeRanges free;
};

class Allocation : public gpu::BlockRange<MemoryBlock> {
 public:
  using BlockRange::BlockRange;
  [[nodiscard]] cl_mem buffer() const { return block().buffer.get(); }
  [[nodiscard]] static std::byte* mapped() { return nullptr; }
};

// A kernel receives an address as a buffer and an offset in it.
struct Place {
  cl_mem buffer = nullptr;
  uint64_t offset = 0;
};

// The bytes of the largest allocation of Memory on a device that allows so many in one of its own:
// the end of a block stays unused.
uint64_t MaxBufferBytes(uint64_t max_allocation);

class Memory {
 public:
  Memory(const Api& api, const Capabilities& capabilities, cl_context context,
         cl_command_queue queue);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Bytes that a piece of a weight may have.
  [[nodiscard]] uint64_t max_piece() const;
  // Contents are undefined. Errors: RL_OUT_OF_MEMORY says how much was asked for.
  Allocation Allocate(uint64_t bytes);
  // The queue for commands of its own, from now on.
  void set_queue(cl_command_queue queue) { queue_ = queue; }
  // The place of an address inside an allocation that lives.
  [[nodiscard]] Place PlaceOf(gpu::DeviceAddress address) const;

 private:
  MemoryBlock& NewBlock(uint64_t bytes);

  const Api& api_;
  const Capabilities& capabilities_;
  cl_context context_;
  cl_command_queue queue_;
  std::map<gpu::DeviceAddress, std::unique_ptr<MemoryBlock>> blocks_;  // by first address
  gpu::DeviceAddress next_address_;
};

}  // namespace rullama::opencl
