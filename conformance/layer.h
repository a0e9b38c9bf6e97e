// Graphs of several ops for the tests of whole plans, from the richest to one that any plugin runs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "conformance/case.h"
#include "conformance/program.h"

namespace rullama::conformance {

inline constexpr int64_t kLayerSlots = 2;
inline constexpr int64_t kLayerCapacity = 12;  // rows of its ring; its window is as long
inline constexpr int64_t kLayerMaxRows = 8;    // of a step

// A layer: norm, projections, rotation, attention with a ring and its append, the wanted rows,
// arg-max. Inputs: x f32[T, 32], pos, slot i32[T], past i32[2], rows i32[R]. States k_state and
// v_state. The type of the projections' weights decides the tolerance class.
Case LayerCase(uint64_t seed, DType weights = DType::kF32);

// Three ops of one kind in a row on x f32[T, 33], for plugins that support `kind` only.
Case ChainCase(uint64_t seed, OpKind kind);

// The richest of these graphs that the device runs. Error kUnsupportedId if it runs none.
Result<Case> RichestCase(Device& device, uint64_t seed);

// Steps for a case of these: numbers of rows that change, slots that take turns, positions that
// continue, a ring that wraps, and a slot that goes back to an earlier position.
class Steps {
 public:
  Steps(const Case& test, uint64_t seed);
  struct Step {
    Extents extents;
    std::map<std::string, Bytes, std::less<>> inputs;
  };
  Step Next();

 private:
  const Case& test_;
  Random random_;
  int count_ = 0;
  std::vector<int32_t> past_ = std::vector<int32_t>(kLayerSlots, 0);
};

}  // namespace rullama::conformance
