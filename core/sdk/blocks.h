// The bytes of the block types as the file has them; dequantize.h says what they mean. All fields
// are bytes or byte pairs, so there is no padding. Blocks in a file need no alignment: copy them
// out.
#pragma once

#include <rullama/sdk/dtype.h>

#include <cstdint>

namespace rullama::sdk {

struct BlockQ4_0 {  // of iq4_nl, too
  uint16_t d;
  uint8_t qs[16];
};
struct BlockQ4_1 {
  uint16_t d;
  uint16_t m;
  uint8_t qs[16];
};
struct BlockQ5_0 {
  uint16_t d;
  uint8_t qh[4];
  uint8_t qs[16];
};
struct BlockQ5_1 {
  uint16_t d;
  uint16_t m;
  uint8_t qh[4];
  uint8_t qs[16];
};
struct BlockQ8_0 {
  uint16_t d;
  int8_t qs[32];
};
struct BlockMxfp4 {
  uint8_t e;
  uint8_t qs[16];
};
struct BlockNvfp4 {
  uint8_t d[4];
  uint8_t qs[32];
};
static_assert(sizeof(BlockQ4_0) == InfoOf(DType::kQ4_0).block_bytes);
static_assert(sizeof(BlockQ4_0) == InfoOf(DType::kIQ4_NL).block_bytes);
static_assert(sizeof(BlockQ4_1) == InfoOf(DType::kQ4_1).block_bytes);
static_assert(sizeof(BlockQ5_0) == InfoOf(DType::kQ5_0).block_bytes);
static_assert(sizeof(BlockQ5_1) == InfoOf(DType::kQ5_1).block_bytes);
static_assert(sizeof(BlockQ8_0) == InfoOf(DType::kQ8_0).block_bytes);
static_assert(sizeof(BlockMxfp4) == InfoOf(DType::kMXFP4).block_bytes);
static_assert(sizeof(BlockNvfp4) == InfoOf(DType::kNVFP4).block_bytes);

struct BlockQ2K {
  uint8_t scales[16];
  uint8_t qs[64];
  uint16_t d;
  uint16_t dmin;
};
struct BlockQ3K {
  uint8_t hmask[32];
  uint8_t qs[64];
  uint8_t scales[12];
  uint16_t d;
};
struct BlockQ4K {
  uint16_t d;
  uint16_t dmin;
  uint8_t scales[12];
  uint8_t qs[128];
};
struct BlockQ5K {
  uint16_t d;
  uint16_t dmin;
  uint8_t scales[12];
  uint8_t qh[32];
  uint8_t qs[128];
};
struct BlockQ6K {
  uint8_t ql[128];
  uint8_t qh[64];
  int8_t scales[16];
  uint16_t d;
};
struct BlockIq4Xs {
  uint16_t d;
  uint16_t scales_h;
  uint8_t scales_l[4];
  uint8_t qs[128];
};
static_assert(sizeof(BlockQ2K) == InfoOf(DType::kQ2_K).block_bytes);
static_assert(sizeof(BlockQ3K) == InfoOf(DType::kQ3_K).block_bytes);
static_assert(sizeof(BlockQ4K) == InfoOf(DType::kQ4_K).block_bytes);
static_assert(sizeof(BlockQ5K) == InfoOf(DType::kQ5_K).block_bytes);
static_assert(sizeof(BlockQ6K) == InfoOf(DType::kQ6_K).block_bytes);
static_assert(sizeof(BlockIq4Xs) == InfoOf(DType::kIQ4_XS).block_bytes);

// Blocks of 256 whose weights are looked up in code books (codebooks.h). Fields of more than a byte
// that would need padding are bytes.
struct BlockIq2Xxs {
  uint16_t d;
  uint8_t qs[64];  // of each 32: four indices, then four times 7 sign bits and 4 bits of scale
};
struct BlockIq2Xs {
  uint16_t d;
  uint16_t qs[32];  // 9 bits of index, 7 of signs
  uint8_t scales[8];
};
struct BlockIq2S {
  uint16_t d;
  uint8_t qs[32];
  uint8_t signs[32];
  uint8_t qh[8];  // bits 8 and 9 of four indices
  uint8_t scales[8];
};
struct BlockIq3Xxs {
  uint16_t d;
  uint8_t qs[64];
  uint8_t signs_and_scales[32];  // as the second half of each eight bytes of iq2_xxs
};
struct BlockIq3S {
  uint16_t d;
  uint8_t qs[64];
  uint8_t qh[8];  // bit 8 of eight indices
  uint8_t signs[32];
  uint8_t scales[4];
};
struct BlockIq1S {
  uint16_t d;
  uint8_t qs[32];
  uint16_t qh[8];  // of four indices bits 8 to 10, then the scale and the sign of the offset
};
struct BlockIq1M {
  uint8_t qs[32];
  uint8_t qh[16];      // of two indices bits 8 to 10 and the sign of the offset
  uint16_t scales[4];  // four scales of 3 bits each; the upper four bits are a quarter of the f16 d
};
// Blocks of 256 weights -1, 0 and 1.
struct BlockTq1_0 {
  uint8_t qs[48];  // five weights each, as digits to the base of 3
  uint8_t qh[4];   // four weights each
  uint16_t d;
};
struct BlockTq2_0 {
  uint8_t qs[64];
  uint16_t d;
};
static_assert(sizeof(BlockIq2Xxs) == InfoOf(DType::kIQ2_XXS).block_bytes);
static_assert(sizeof(BlockIq2Xs) == InfoOf(DType::kIQ2_XS).block_bytes);
static_assert(sizeof(BlockIq2S) == InfoOf(DType::kIQ2_S).block_bytes);
static_assert(sizeof(BlockIq3Xxs) == InfoOf(DType::kIQ3_XXS).block_bytes);
static_assert(sizeof(BlockIq3S) == InfoOf(DType::kIQ3_S).block_bytes);
static_assert(sizeof(BlockIq1S) == InfoOf(DType::kIQ1_S).block_bytes);
static_assert(sizeof(BlockIq1M) == InfoOf(DType::kIQ1_M).block_bytes);
static_assert(sizeof(BlockTq1_0) == InfoOf(DType::kTQ1_0).block_bytes);
static_assert(sizeof(BlockTq2_0) == InfoOf(DType::kTQ2_0).block_bytes);

}  // namespace rullama::sdk
