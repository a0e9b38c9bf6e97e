// Weights of sixteen rows, unpacked for products with many columns: byte codes interleaved so that
// one vector holds four consecutive elements of sixteen rows, and the scale and offset of every
// sixteen elements, sixteen rows to a vector. A lane belongs to one row, so nothing is folded at
// the end. Internal linkage throughout, see simd_portable.h.
#pragma once

#include "backends/cpu/kernels/weight_decoders.h"

namespace rullama::cpu {
namespace {

constexpr size_t kLanes = 16;

template <size_t kDepth>
struct CodePanel {
  uint8_t codes[kDepth * kLanes];     // [k / 4][row][k % 4]
  float scale[kDepth / 16 * kLanes];  // [k / 16][row]
  float offset[kDepth / 16 * kLanes];
};

// Sixteen short streams are more than the hardware follows, and a burst of requests stalls, so the
// next panel is fetched in the order of memory, a few lines at a time, all the while this one is
// unpacked and used.
struct ReadAhead {
  const uint8_t* next;
  const uint8_t* end;
  RL_INLINE void Fetch(size_t lines) {
    for (; lines > 0 && next < end; --lines, next += 64) PrefetchFar(next);
  }
};

template <DType T, int kPiece>
RL_INLINE void UnpackPiece(const uint8_t* const chunks[kLanes], ReadAhead& ahead, uint8_t* out) {
  // Half of what four pieces read; the register tiles fetch the rest.
  ahead.Fetch(kLanes * kChunkBytes<T> / 64 / 8 + 1);
  U8x64 codes[kLanes];
  for (size_t r = 0; r < kLanes; ++r) codes[r] = Decoder<T>::template Codes<kPiece>(chunks[r]);
  StoreTransposed(codes, out + kPiece * 64 * kLanes, 4 * kLanes);
}

// Unpacks chunk `slot` of a panel for sixteen rows.
template <DType T, size_t kDepth>
void UnpackChunk(const uint8_t* const chunks[kLanes], size_t slot, ReadAhead& ahead,
                 CodePanel<kDepth>& panel) {
  U8x64 scales[kLanes], offsets[kLanes];
  for (size_t r = 0; r < kLanes; ++r) {
    const ScalePair pair = ScalesOf<T>(chunks[r]);
    scales[r] = AsBytes(pair.scale);
    offsets[r] = AsBytes(pair.offset);
  }
  const size_t first_scale = slot * (kChunk / 16) * kLanes;
  StoreTransposed(scales, reinterpret_cast<uint8_t*>(panel.scale + first_scale), 4 * kLanes);
  StoreTransposed(offsets, reinterpret_cast<uint8_t*>(panel.offset + first_scale), 4 * kLanes);
  uint8_t* out = panel.codes + slot * kChunk * kLanes;
  UnpackPiece<T, 0>(chunks, ahead, out);
  UnpackPiece<T, 1>(chunks, ahead, out);
  UnpackPiece<T, 2>(chunks, ahead, out);
  UnpackPiece<T, 3>(chunks, ahead, out);
}

// Elements of k that a panel covers.
struct Depth {
  size_t begin, end;
};

// Unpacks rows [n, n + 16); rows from n_end on repeat the last one. An incomplete last chunk is
// completed with zeros.
template <DType T, size_t kDepth>
void Unpack(const MatMulArgs& args, size_t n, const Depth& depth, ReadAhead& ahead,
            CodePanel<kDepth>& panel) {
  const uint8_t* chunks[kLanes];
  for (size_t r = 0; r < kLanes; ++r) {
    const size_t row = n + r < args.n_end ? n + r : args.n_end - 1;
    chunks[r] = static_cast<const uint8_t*>(args.weights) + row * args.row_bytes +
                depth.begin / kChunk * kChunkBytes<T>;
  }
  size_t slot = 0;
  for (size_t k = depth.begin; k + kChunk <= depth.end; k += kChunk, ++slot) {
    UnpackChunk<T>(chunks, slot, ahead, panel);
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
    UnpackChunk<T>(chunks, slot, ahead, panel);
  }
}

}  // namespace
}  // namespace rullama::cpu
