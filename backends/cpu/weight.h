// Weights as the CPU backend keeps them: in place in the host's mapping, or, where products read
// them, packed: rearranged once for the kernels (kernels/packed_rows.h), in memory of the plugin.
#pragma once

#include <rullama/abi/rullama_abi.h>
#include <rullama/sdk/backend.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "backends/cpu/kernels/kernels.h"

namespace rullama::cpu {

class ThreadPool;

// Memory of packed weights, one behind the other in large pages: weights end where they like, and
// pages of the usual size for each one's end were a fifth of E2B. For one thread at a time.
class WeightArena {
 public:
  // Aligned to a cache line. What the arena takes at a time is given back when the arena has gone
  // on to the next or is gone, and with the last weight in it. Throws std::bad_alloc.
  std::shared_ptr<std::byte> Allocate(size_t bytes);

 private:
  std::shared_ptr<std::byte> chunk_;
  std::byte* next_ = nullptr;  // in chunk_
  size_t left_ = 0;            // from there
};

// Immutable once made; any thread may read.
class CpuWeight final : public sdk::Weight {
 public:
  // Reads `data` in place, which outlives the weight.
  explicit CpuWeight(const void* data) : data_(data) {}
  // Packs a weight that CanBePacked, with all workers of the pool. Throws std::bad_alloc.
  CpuWeight(const KernelTable& kernels, const rl_weight_desc& desc, WeightArena& arena,
            ThreadPool& pool);

  [[nodiscard]] const void* data() const { return data_; }
  [[nodiscard]] bool packed() const { return memory_ != nullptr; }

 private:
  std::shared_ptr<std::byte> memory_;  // of a packed weight
  const void* data_;
};

// Whether there are kernels for the type and every matrix has whole panels of rows.
[[nodiscard]] bool CanBePacked(const KernelTable& kernels, const rl_weight_desc& desc);

// A row of a weight of block or float type as floats.
struct WeightRow {
  const std::byte* weight;  // row 0
  bool packed;
  size_t elements;  // of a row
  size_t row;
};
// Elements [first, first + count), whole blocks.
void ReadRow(const WeightKernels& kernels, DType dtype, const WeightRow& row, size_t first,
             size_t count, float* out);

}  // namespace rullama::cpu
