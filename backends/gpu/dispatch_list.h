// The dispatches of a plan in order, and the f16 copies that several of them read.
//
// Thread safety: none.
#pragma once

#include <map>
#include <vector>

#include "backends/gpu/dispatch.h"
#include "backends/gpu/scratch_pool.h"

namespace rullama::gpu {

// The rows of a value in f16 and the scale of each row (to_half.comp).
struct HalfRows {
  Scratch rows;
  Scratch factors;
};

class DispatchList {
 public:
  explicit DispatchList(ScratchPool& scratch) : scratch_(scratch) {}

  // Forgets the f16 copies of memory that the dispatch writes.
  void Append(Dispatch dispatch);
  // The f16 copy of the value or scratch at `address`, or null if there is none.
  [[nodiscard]] const HalfRows* FindHalf(DeviceAddress address) const;
  // Keeps a copy, which lies in ScratchPool::Take memory, until its source is written.
  void KeepHalf(DeviceAddress address, const HalfRows& half) { halves_[address] = half; }
  [[nodiscard]] std::vector<Dispatch> Take() { return std::move(dispatches_); }

 private:
  ScratchPool& scratch_;
  std::vector<Dispatch> dispatches_;
  std::map<DeviceAddress, HalfRows> halves_;  // by the address of the f32 source
};

}  // namespace rullama::gpu
