// Panels of GEMM: sixteen weight rows unpacked to byte quants. One vector holds four consecutive
// elements of each of the sixteen rows, and one vector of scales (and of offsets) covers sixteen
// elements of the sixteen rows. Each 32-bit lane belongs to one row, so accumulators need no
// horizontal sum. Internal linkage throughout, see simd_portable.h.
#pragma once

#include "backends/cpu/kernels/codebook_decoders.h"
#include "backends/cpu/kernels/matmul.h"
#include "backends/cpu/kernels/weight_decoders.h"

namespace rullama::cpu {
namespace {

template <size_t kDepth>
struct QuantPanel {
  uint8_t quants[kDepth * kLanes];    // [k / 4][row][k % 4]
  float scale[kDepth / 16 * kLanes];  // [k / 16][row]
  float offset[kDepth / 16 * kLanes];
};

// Software prefetch of the next panel. The hardware prefetcher cannot follow sixteen short streams,
// and a burst of prefetches stalls, so the next panel is fetched in memory order, a few cache lines
// at a time, while the current one is unpacked and used.
struct ReadAhead {
  const uint8_t* next;
  const uint8_t* end;
  RL_INLINE void Fetch(size_t lines) {
    for (; lines > 0 && next < end; --lines, next += 64) PrefetchFar(next);
  }
};

template <DType T, int kQuarter>
RL_INLINE void UnpackQuarter(const uint8_t* const chunks[kLanes], ReadAhead& ahead, uint8_t* out) {
  // Half of the lines that the four quarters read; the register tiles fetch the other half.
  ahead.Fetch(kLanes * kChunkBytes<T> / 64 / 8 + 1);
  U8x64 quants[kLanes];
  for (size_t r = 0; r < kLanes; ++r) quants[r] = Decoder<T>::template Quants<kQuarter>(chunks[r]);
  StoreTransposed(quants, out + kQuarter * 64 * kLanes, 4 * kLanes);
}

// Unpacks the chunks of sixteen rows to position `index` of the panel.
template <DType T, size_t kDepth>
void UnpackChunk(const uint8_t* const chunks[kLanes], size_t index, ReadAhead& ahead,
                 QuantPanel<kDepth>& panel) {
  U8x64 scales[kLanes], offsets[kLanes];
  for (size_t r = 0; r < kLanes; ++r) {
    const ScalePair pair = ScalesOf<T>(chunks[r]);
    scales[r] = AsBytes(pair.scale);
    offsets[r] = AsBytes(pair.offset);
  }
  const size_t first_scale = index * (kChunk / 16) * kLanes;
  StoreTransposed(scales, reinterpret_cast<uint8_t*>(panel.scale + first_scale), 4 * kLanes);
  StoreTransposed(offsets, reinterpret_cast<uint8_t*>(panel.offset + first_scale), 4 * kLanes);
  uint8_t* out = panel.quants + index * kChunk * kLanes;
  UnpackQuarter<T, 0>(chunks, ahead, out);
  UnpackQuarter<T, 1>(chunks, ahead, out);
  UnpackQuarter<T, 2>(chunks, ahead, out);
  UnpackQuarter<T, 3>(chunks, ahead, out);
}

// The range of k that a panel covers.
struct Depth {
  size_t begin, end;
};

// Unpacks rows [n, n + 16). Rows past n_end repeat the last row; an incomplete last chunk is padded
// with zeros.
template <DType T, size_t kDepth>
void Unpack(const MatMulArgs& args, size_t n, const Depth& depth, ReadAhead& ahead,
            QuantPanel<kDepth>& panel) {
  const uint8_t* chunks[kLanes];
  for (size_t r = 0; r < kLanes; ++r) {
    const size_t row = n + r < args.n_end ? n + r : args.n_end - 1;
    chunks[r] = static_cast<const uint8_t*>(args.weights) + row * args.row_bytes +
                depth.begin / kChunk * kChunkBytes<T>;
  }
  size_t index = 0;
  for (size_t k = depth.begin; k + kChunk <= depth.end; k += kChunk, ++index) {
    UnpackChunk<T>(chunks, index, ahead, panel);
    for (const uint8_t*& chunk : chunks) chunk += kChunkBytes<T>;
  }
  if constexpr (kBlockElements<T> < kChunk) {
    const size_t rest = (depth.end - depth.begin) % kChunk;
    if (rest == 0) return;
    uint8_t padded[kLanes][kChunkBytes<T>] = {};
    for (size_t r = 0; r < kLanes; ++r) {
      std::memcpy(padded[r], chunks[r], rest / kBlockElements<T> * Decoder<T>::kBlockBytes);
      chunks[r] = padded[r];
    }
    UnpackChunk<T>(chunks, index, ahead, panel);
  }
}

}  // namespace
}  // namespace rullama::cpu
