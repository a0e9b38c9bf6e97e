// The dispatches of a plan in order, and the f16 copies that several of them read.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/gpu/dispatch.h"
#include "backends/gpu/scratch_pool.h"

namespace rullama::gpu {

// The rows of a value in f16, as sums of `parts` numbers, and the scale of each row
// (to_half.kernel).
struct HalfRows {
  Scratch rows;
  Scratch factors;
  uint32_t parts;
  uint64_t columns;  // of a part of a row, with the zeros after it
};

class DispatchList {
 public:
  explicit DispatchList(ScratchPool& scratch) : scratch_(scratch) {}

  // Forgets the f16 copies of memory that the dispatch writes.
  void Append(Dispatch dispatch);
  // The f16 copy of the value or scratch in `source` with this number of parts, or null if there is
  // none.
  [[nodiscard]] const HalfRows* FindHalf(const Range& source, uint32_t parts) const;
  // Keeps a copy, which lies in ScratchPool::Take memory, until its source is written or an op
  // after `last_op` begins. The source may be a value that no dispatch writes.
  void KeepHalf(const Range& source, const HalfRows& half, uint32_t last_op) {
    halves_.push_back({source, half, last_op});
  }
  // The next dispatches are those of this op.
  void BeginOp(uint32_t op);
  [[nodiscard]] std::vector<Dispatch> Take() { return std::move(dispatches_); }

 private:
  struct KeptHalf {
    Range source;  // in f32
    HalfRows half;
    uint32_t last_op;
  };
  // Forgets the copies for which this is true.
  template <typename Condition>
  void ForgetHalves(Condition condition);

  ScratchPool& scratch_;
  std::vector<Dispatch> dispatches_;
  std::vector<KeptHalf> halves_;
};

}  // namespace rullama::gpu
