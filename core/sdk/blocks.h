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

}  // namespace rullama::sdk
