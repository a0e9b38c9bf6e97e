// The order in which a run sees its examples. Pure; a value type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace rullama {

// Epoch after epoch of all examples without an end: example k of the run is a function of the seed
// and k alone, so a run that continues from a checkpoint sees what it would have seen.
class ExampleOrder {
 public:
  // `examples` > 0. Without `shuffle` each epoch has the order of the file.
  ExampleOrder(size_t examples, uint64_t seed, bool shuffle)
      : examples_(examples), seed_(seed), shuffle_(shuffle) {}

  // The index of example k of the run, k = 0, 1, ...
  [[nodiscard]] size_t At(uint64_t k);

 private:
  void DrawEpoch(uint64_t epoch);

  size_t examples_;
  uint64_t seed_;
  bool shuffle_;
  uint64_t epoch_ = 0;               // of `permutation_`
  std::vector<size_t> permutation_;  // empty until the first use
};

}  // namespace rullama
