// The block types that kernels read, one row each: what they know of a type besides how its bits
// are read (weight_decoders.h, packed_rows.h). Internal linkage throughout, see simd_portable.h.
#pragma once

#include <rullama/sdk/dtype.h>

#include "backends/cpu/kernels/activation_format.h"
#include "backends/cpu/kernels/simd.h"

namespace rullama::cpu {
namespace {

// Weight rows side by side in a panel (weight_panel.h) and in a packed group (packed_rows.h).
constexpr size_t kLanes = 16;

// Wide quants are stored with this bias: zero on levels whose dot product takes signed bytes.
constexpr int kWideBias = kWideQuantsAreSigned ? 0 : 128;

// The facts about a block type that InfoOf() does not have.
struct BlockFormat {
  DType type;
  int group;     // elements per scale, 16 or 32
  bool wide;     // quants span all of int8; the others are unsigned, at most 128 (simd_avx2.h)
  bool has_min;  // the offset is a stored minimum; else -zero * scale
  int zero;      // the quant of weight 0 in types without a minimum
};

constexpr BlockFormat kBlockFormats[] = {
    {DType::kQ4_0, 32, false, false, 8},          {DType::kQ4_1, 32, false, true, 0},
    {DType::kQ5_0, 32, false, false, 16},         {DType::kQ5_1, 32, false, true, 0},
    {DType::kQ8_0, 32, true, false, kWideBias},   {DType::kIQ4_NL, 32, true, false, kWideBias},
    {DType::kMXFP4, 32, false, false, 12},        {DType::kQ2_K, 16, false, true, 0},
    {DType::kQ3_K, 16, false, false, 4},          {DType::kQ4_K, 32, false, true, 0},
    {DType::kQ5_K, 32, false, true, 0},           {DType::kQ6_K, 16, false, false, 32},
    {DType::kIQ4_XS, 32, true, false, kWideBias}, {DType::kIQ2_XXS, 32, false, false, 43},
    {DType::kIQ2_XS, 16, false, false, 43},       {DType::kIQ2_S, 16, false, false, 43},
    {DType::kIQ3_XXS, 32, false, false, 62},      {DType::kIQ3_S, 32, false, false, 15},
};

// The row of a type. A BlockType without one does not compile.
constexpr BlockFormat FormatOf(DType type) {
  for (const BlockFormat& format : kBlockFormats) {
    if (format.type == type) return format;
  }
  throw "not a block type";
}

template <DType T>
struct BlockType {
  static constexpr size_t kBlockBytes = InfoOf(T).block_bytes;
  static constexpr int kGroup = FormatOf(T).group;
  static constexpr bool kWide = FormatOf(T).wide;
  static constexpr bool kHasMin = FormatOf(T).has_min;
  static constexpr int kZero = FormatOf(T).zero;
};

// True if products have to add offsets.
template <DType T>
constexpr bool kHasOffset = BlockType<T>::kHasMin || BlockType<T>::kZero != 0;

// Elements per block (32 or 256) and bytes per chunk of 256 elements.
template <DType T>
constexpr size_t kBlockElements = InfoOf(T).block_elements;
template <DType T>
constexpr size_t kChunkBytes = BlockType<T>::kBlockBytes*(kChunk / kBlockElements<T>);

}  // namespace
}  // namespace rullama::cpu
