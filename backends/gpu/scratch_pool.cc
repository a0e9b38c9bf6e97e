#include "backends/gpu/scratch_pool.h"

#include <algorithm>

namespace rullama::gpu {

Scratch ScratchPool::New(uint64_t bytes) {
  bytes_ += bytes;
  return {device_.NewMemory(bytes), bytes};
}

Scratch ScratchPool::Take(uint64_t bytes) {
  const auto found = free_.lower_bound(bytes);
  if (found == free_.end()) return New(bytes);
  const Scratch scratch{found->second, found->first};
  free_.erase(found);
  return scratch;
}

DeviceAddress ScratchPool::Constant(std::span<const std::byte> bytes) {
  const Scratch scratch = New(std::max<uint64_t>(bytes.size(), 1));
  device_.Fill(scratch.address, bytes);
  return scratch.address;
}

}  // namespace rullama::gpu
