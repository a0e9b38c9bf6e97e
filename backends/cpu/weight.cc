#include "backends/cpu/weight.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "backends/cpu/kernels/transpose.h"
#include "backends/cpu/thread_pool.h"

namespace rullama::cpu {
namespace {

constexpr size_t kLargePage = size_t{2} << 20;
constexpr size_t kWeightAlignment = 64;  // a cache line
// Allocation size of the arena. Pages that no weight touches are not backed by memory.
constexpr size_t kChunkBytes = size_t{64} << 20;

size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

size_t RowElements(const rl_weight_desc& desc) {
  return static_cast<size_t>(desc.dims[desc.rank - 1]);
}

}  // namespace

std::shared_ptr<std::byte> WeightArena::Allocate(size_t bytes) {
  const size_t whole = RoundUp(bytes, kWeightAlignment);
  if (whole > left_) {
    const size_t size = std::max(kChunkBytes, RoundUp(whole, kLargePage));
    chunk_.reset(static_cast<std::byte*>(std::aligned_alloc(kLargePage, size)),
                 [](std::byte* memory) { std::free(memory); });
    left_ = 0;
    if (chunk_ == nullptr) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
    // Streaming reads from large pages are up to 1.4 times as fast as from small ones.
    ::madvise(chunk_.get(), size, MADV_HUGEPAGE);
#endif
    next_ = chunk_.get();
    left_ = size;
  }
  left_ -= whole;
  return {chunk_, std::exchange(next_, next_ + whole)};
}

CpuWeight::CpuWeight(const KernelTable& kernels, const rl_weight_desc& desc, WeightArena& arena,
                     ThreadPool& pool)
    : memory_(arena.Allocate(static_cast<size_t>(desc.bytes))), data_(memory_.get()) {
  const auto dtype = static_cast<DType>(desc.dtype);
  const size_t k = RowElements(desc);
  const auto row_bytes = static_cast<size_t>(RowBytes(dtype, k));
  const size_t group_bytes = kPackedRows * row_bytes;
  const auto groups = static_cast<size_t>(desc.bytes / group_bytes);
  const auto pack = FindWeight(kernels, dtype)->pack;
  const auto parts = static_cast<size_t>(pool.workers());
  pool.Share(parts, [&](size_t part) {
    for (size_t i = groups * part / parts; i < groups * (part + 1) / parts; ++i) {
      const size_t at = i * group_bytes;
      pack(static_cast<const std::byte*>(desc.data) + at, row_bytes, k, memory_.get() + at);
    }
  });
}

const float* CpuWeight::StreamedRows(MatrixShape shape, WeightArena& arena) {
  if (streamed_ == nullptr) {
    const size_t bytes = shape.rows * shape.columns * sizeof(float);
    streamed_ = arena.Allocate(bytes);
    std::memcpy(streamed_.get(), data_, bytes);
  }
  return reinterpret_cast<const float*>(streamed_.get());
}

const float* CpuWeight::TransposedPanels(MatrixShape shape, WeightArena& arena, size_t matrices) {
  if (transposed_ == nullptr) {
    const size_t all = matrices * shape.rows;
    transposed_ = arena.Allocate(all * shape.columns * sizeof(float));
    const auto* rows = static_cast<const float*>(data_);
    auto* panels = reinterpret_cast<float*>(transposed_.get());
    for (size_t first = 0; first < all;) {
      const size_t left = shape.rows - first % shape.rows;  // in this matrix
      const size_t count = std::min(kTransposedRows, left);
      const size_t at = first * shape.columns;
      Transpose(rows + at, count, shape.columns, panels + at);
      first += count;
    }
  }
  return reinterpret_cast<const float*>(transposed_.get());
}

bool CanBePacked(const KernelTable& kernels, const rl_weight_desc& desc) {
  const WeightKernels* weight = FindWeight(kernels, static_cast<DType>(desc.dtype));
  if (weight == nullptr || weight->pack == nullptr || desc.rank < 2) return false;
  // The matrix of an expert may hold gate and up, which are separate products.
  const size_t parts = desc.rank == 2 ? 1 : 2;
  return desc.dims[desc.rank - 2] % static_cast<int64_t>(parts * kPanelRows) == 0;
}

void ReadRow(const WeightKernels& kernels, DType dtype, const WeightRow& row, size_t first,
             size_t count, float* out) {
  const auto row_bytes = static_cast<size_t>(RowBytes(dtype, row.elements));
  if (row.packed) {
    const size_t lane = row.row % kPackedRows;
    kernels.dequantize_packed(row.weight + (row.row - lane) * row_bytes, lane, row.elements, first,
                              count, out);
  } else {
    kernels.dequantize(row.weight + row.row * row_bytes + RowBytes(dtype, first), count, out);
  }
}

}  // namespace rullama::cpu
