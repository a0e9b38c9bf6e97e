// Panels of GEMM (weight_panel.h) from weight rows that may be packed (packed_rows.h). Internal
// linkage throughout, see simd_portable.h.
#pragma once

#include "backends/cpu/kernels/matmul.h"
#include "backends/cpu/kernels/packed_rows.h"
#include "backends/cpu/kernels/weight_decoders.h"
#include "backends/cpu/kernels/weight_panel.h"

namespace rullama::cpu {
namespace {

template <DType T, int kPair = 0>
RL_INLINE void FillQuants(const uint8_t* words, int section, uint8_t* quants) {
  using P = PackedBlock<T>;
  if constexpr (kPair < P::kPairs) {
#pragma GCC unroll 8
    for (int step = 0; step < P::kSteps; ++step) {
      uint8_t* at = quants + 4 * static_cast<size_t>(step) * kLanes;
      StoreBytes(at + P::FirstElement(section, kPair, 0) * kLanes,
                 P::template Quants<kPair, 0>(words, section, step));
      StoreBytes(at + P::FirstElement(section, kPair, 1) * kLanes,
                 P::template Quants<kPair, 1>(words, section, step));
    }
    FillQuants<T, kPair + 1>(words, section, quants);
  }
}

// Fills the panel of one packed group of rows.
template <DType T, size_t kDepth>
void FillFromPacked(const PackedRows<T>& rows, const Depth& depth, ReadAhead& ahead,
                    QuantPanel<kDepth>& panel) {
  constexpr size_t kElements = kBlockElements<T>;
  for (size_t k = depth.begin; k < depth.end; k += kElements) {
    ahead.Fetch(kLanes * BlockType<T>::kBlockBytes / 64 / 2 + 1);
    const size_t block = k / kElements;
    const size_t at = k - depth.begin;
    for (int section = 0; section < PackedBlock<T>::kSections; ++section) {
      FillQuants<T>(rows.Words(block), section, panel.quants + at * kLanes);
    }
    float scale[kGroups<T> * kLanes], offset[kGroups<T> * kLanes];
    PackedBlock<T>::Scales(rows.D(block), rows.Words(block), scale, offset);
    for (size_t g = 0; g < kElements / 16; ++g) {
      const size_t from = g * 16 / BlockType<T>::kGroup * kLanes;
      const F32x16 factor = Load(scale + from);
      Store(panel.scale + at + g * kLanes, factor);
      Store(panel.offset + at + g * kLanes, BlockType<T>::kHasMin
                                                ? Load(offset + from)
                                                : Symmetric(factor, BlockType<T>::kZero).offset);
    }
  }
}

// Fills the panel of rows [n, n + 16), packed or in GGUF layout.
template <DType T, size_t kDepth>
void FillPanel(const MatMulArgs& args, size_t n, const Depth& depth, ReadAhead& ahead,
               QuantPanel<kDepth>& panel) {
  if constexpr (kCanBePacked<T>) {
    if (args.packed) {
      const auto* group = static_cast<const uint8_t*>(args.weights) + n * args.row_bytes;
      return FillFromPacked<T>(PackedRows<T>(group, args.k), depth, ahead, panel);
    }
  }
  Unpack<T>(args, n, depth, ahead, panel);
}

}  // namespace
}  // namespace rullama::cpu
