// Weights of the CPU backend. Weights of products are packed (kernels/packed_rows.h) into memory of
// the plugin; other weights are read in place in the host's mapping of the file.
#pragma once

#include <rullama/abi/rullama_abi.h>
#include <rullama/sdk/backend.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "backends/cpu/kernels/kernel_table.h"

namespace rullama::cpu {

class ThreadPool;

// Bump allocator for packed weights over 2 MiB pages. Weights are packed back to back, because
// padding each one to a page of its own would waste 20 % (E2B). Not thread-safe.
class WeightArena {
 public:
  // Returns memory aligned to a cache line. A chunk is freed when its last weight is destroyed and
  // the arena has moved on to another chunk or is destroyed. Throws std::bad_alloc.
  std::shared_ptr<std::byte> Allocate(size_t bytes);

 private:
  std::shared_ptr<std::byte> chunk_;
  std::byte* next_ = nullptr;  // first free byte of chunk_
  size_t left_ = 0;            // free bytes from next_ on
};

// Rows of B that TransposedPanels() stores side by side.
inline constexpr size_t kTransposedRows = 64;

// A matrix of f32 numbers.
struct MatrixShape {
  size_t rows, columns;
};

// Any thread may read data(). The copies are made while a plan is compiled, by one thread at a
// time.
class CpuWeight final : public sdk::Weight {
 public:
  // Reads `data` in place; `data` must outlive the weight.
  explicit CpuWeight(const void* data) : data_(data) {}
  // Packs a weight for which CanBePacked() holds, using all workers of the pool. Throws
  // std::bad_alloc.
  CpuWeight(const KernelTable& kernels, const rl_weight_desc& desc, WeightArena& arena,
            ThreadPool& pool);

  [[nodiscard]] const void* data() const { return data_; }
  [[nodiscard]] bool packed() const { return memory_ != nullptr; }

  // Copies of f32 matrices that are the A or the B of adapters, in the large pages of the arena.
  // Each is made at its first call and lives as long as the weight. They throw std::bad_alloc.
  //
  // The rows as they are.
  const float* StreamedRows(MatrixShape shape, WeightArena& arena);
  // Panels of kTransposedRows rows of each of `matrices`, the last one with the rest; each is
  // stored as its transpose.
  const float* TransposedPanels(MatrixShape shape, WeightArena& arena, size_t matrices = 1);

 private:
  std::shared_ptr<std::byte> memory_;  // packed rows; null for a weight that is read in place
  std::shared_ptr<std::byte> streamed_, transposed_;
  const void* data_;
};

// True if the type has packing kernels and every matrix of the weight has whole panels of rows.
[[nodiscard]] bool CanBePacked(const KernelTable& kernels, const rl_weight_desc& desc);

// The location of a row of a weight of block or float type.
struct WeightRow {
  const std::byte* weight;  // row 0
  bool packed;
  size_t elements;  // per row
  size_t row;       // index
};
// Dequantises elements [first, first + count), whole blocks, of a row.
void ReadRow(const WeightKernels& kernels, DType dtype, const WeightRow& row, size_t first,
             size_t count, float* out);

}  // namespace rullama::cpu
