#include "engine/training/example_order.h"

#include <rullama/sdk/philox.h>

#include <array>
#include <numeric>
#include <utility>

namespace rullama {
namespace {

// Keeps the numbers of the order apart from those that samplers and adapters draw with the seed.
constexpr uint32_t kOrderStream = 0x6F726465;

}  // namespace

size_t ExampleOrder::At(uint64_t k) {
  if (!shuffle_) return static_cast<size_t>(k % examples_);
  const uint64_t epoch = k / examples_;
  if (permutation_.empty() || epoch != epoch_) DrawEpoch(epoch);
  return permutation_[static_cast<size_t>(k % examples_)];
}

// Fisher and Yates. A number below n is the upper half of a 32-bit draw times n.
void ExampleOrder::DrawEpoch(uint64_t epoch) {
  epoch_ = epoch;
  permutation_.resize(examples_);
  std::iota(permutation_.begin(), permutation_.end(), size_t{0});
  const std::array<uint32_t, 2> key = {static_cast<uint32_t>(seed_),
                                       static_cast<uint32_t>(seed_ >> 32)};
  for (size_t i = examples_; i-- > 1;) {
    const PhiloxBlock block = Philox4x32({static_cast<uint32_t>(i), static_cast<uint32_t>(epoch),
                                          static_cast<uint32_t>(epoch >> 32), kOrderStream},
                                         key);
    const auto other = static_cast<size_t>((uint64_t{block.word[0]} * (i + 1)) >> 32);
    std::swap(permutation_[i], permutation_[other]);
  }
}

}  // namespace rullama
