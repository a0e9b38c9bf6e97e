// Weights in the layouts of gpu/weights.cc. A row is cut into chunks of 32 elements, each decoded
// as two runs of 16 consecutive elements with one scale and one offset: value = scale * code +
// offset.

#if kType == kF32 || kType == kF16 || kType == kBF16
#define PLAIN 1
#define kBlock 1u  // elements of a block
#elif kType == kNVFP4
#define kBlock 64u
#elif (kType >= kQ2_K && kType <= kQ6_K) || kType == kIQ4_XS
#define kBlock 256u
#else
#define kBlock 32u
#endif

#define kHasOffset \
  (kType == kQ4_1 || kType == kQ5_1 || kType == kQ2_K || kType == kQ4_K || kType == kQ5_K)

// The bias that the codes of a type are stored with.
#if kType == kQ4_0
#define kBias 8
#elif kType == kQ5_0
#define kBias 16
#elif kType == kQ6_K
#define kBias 32
#elif kType == kQ3_K
#define kBias 4
#elif kType == kQ8_0 || kType == kIQ4_NL || kType == kIQ4_XS || kType == kMXFP4 || kType == kNVFP4
#define kBias 128
#else
#define kBias 0
#endif

// A row of weights: where it begins and how many blocks it has.
typedef struct {
  __global const uchar* base;
  uint blocks;
} WeightRow;

// A run of 16 codes of a byte each, less the bias of their type; floats for plain types.
typedef struct {
  float scale[2];
  float offset[2];
#ifdef PLAIN
  float16 plain[2];
#else
  uint4 codes[2];
#endif
} Chunk;

// Sixteen numbers to work on one by one, or at once.
typedef union {
  float16 vector;
  float4 four[4];
  float one[16];
} Sixteen;

#ifndef PLAIN
// A byte of a word as a float without a conversion, which GPUs do at a fraction of their rate: put
// below the exponent of a power of two, it is added to it.
float4 FourCodes(uint word) {
  const float low = 8388608.0f + kBias, high = 32768.0f + kBias;
  return (float4)(as_float((word & 0xFFu) | 0x4B000000u) - low,
                  as_float((word & 0xFF00u) | 0x47000000u) - high,
                  as_float(((word >> 16) & 0xFFu) | 0x4B000000u) - low,
                  as_float(((word >> 16) & 0xFF00u) | 0x47000000u) - high);
}
#endif

// The codes of a run as floats.
Sixteen CodesOf(const Chunk* c, uint run) {
  Sixteen codes;
#if defined(PLAIN)
  codes.vector = c->plain[run];
#elif defined(CPU)
  codes.vector = convert_float16(as_uchar16(c->codes[run])) - (float)kBias;
#else
  codes.four[0] = FourCodes(c->codes[run].x);
  codes.four[1] = FourCodes(c->codes[run].y);
  codes.four[2] = FourCodes(c->codes[run].z);
  codes.four[3] = FourCodes(c->codes[run].w);
#endif
  return codes;
}

// The values of a run.
Sixteen ValuesOf(const Chunk* c, uint run) {
  Sixteen values = CodesOf(c, run);
#ifndef PLAIN
  values.vector *= c->scale[run];
#endif
#if kHasOffset
  values.vector += c->offset[run];
#endif
  return values;
}

#define kNibbles 0x0F0F0F0Fu

// Four codes through a table of sixteen signed bytes, plus 128.
uint Lookup(uint4 table, uint codes) {
  uint result = 0;
  UNROLL for (uint i = 0; i < 4; ++i) {
    const uint code = (codes >> (8 * i)) & 15u;
    const uint low = (code & 4u) ? table.y : table.x, high = (code & 4u) ? table.w : table.z;
    const uint word = (code & 8u) ? high : low;
    result |= ((word >> ((code & 3u) * 8u)) & 255u) << (8 * i);
  }
  return result ^ 0x80808080u;
}
uint4 LookupAll(uint4 table, uint4 codes) {
  return (uint4)(Lookup(table, codes.x), Lookup(table, codes.y), Lookup(table, codes.z),
                 Lookup(table, codes.w));
}
// -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113
#define Iq4(codes) LookupAll((uint4)(0xBFAD9881u, 0xF6EADDCFu, 0x26190D01u, 0x71594535u), codes)
// Twice the values of e2m1: 0, 1, 2, 3, 4, 6, 8, 12, and negative.
#define TwiceE2M1(codes) \
  LookupAll((uint4)(0x03020100u, 0x0C080604u, 0xFDFEFF00u, 0xF4F8FAFCu), codes)
float UnsignedE4M3(uint code) {
  if (code == 0u || code == 0x7Fu) return 0.0f;
  const float mantissa = (float)(code & 7u);
  if ((code >> 3) == 0u) return mantissa * 0.001953125f;
  return (1.0f + mantissa * 0.125f) * as_float(((code >> 3) + 120u) << 23);
}

uint WordOf(uint4 words, uint i) {
  const uint low = (i & 1u) ? words.y : words.x, high = (i & 1u) ? words.w : words.z;
  return (i & 2u) ? high : low;
}
uint ByteOf(uint4 words, uint i) { return (WordOf(words, i >> 2) >> ((i & 3u) * 8u)) & 255u; }

// Four bits to bit 4 of four bytes.
uint Spread(uint bits) { return (((bits & 15u) * 0x00204081u) & 0x01010101u) << 4; }

uint Load16(WeightRow row, uint offset) { return *(__global const ushort*)(row.base + offset); }
uint Load32(WeightRow row, uint offset) { return *(__global const uint*)(row.base + offset); }
uint4 Load128(WeightRow row, uint offset) { return *(__global const uint4*)(row.base + offset); }

// The bytes that a chunk is decoded from, as they lie in memory. It is loaded and unpacked in two
// steps, so that work may be put between them.
typedef struct {
#if kType == kF32
  uint4 vector[8];
#elif kType == kF16 || kType == kBF16
  uint4 vector[4];
#else
  uint4 vector[5];
#endif
  uint word[2];
} RawChunk;

#if defined(PLAIN)
RawChunk Load(WeightRow row, uint chunk) {
  RawChunk raw;
  const uint vectors = kType == kF32 ? 8 : 4;
  UNROLL for (uint i = 0; i < vectors; ++i) raw.vector[i] =
      Load128(row, (chunk * vectors + i) * 16);
  return raw;
}
#if kType == kF32
Chunk Unpack(const RawChunk raw, uint chunk) {
  Chunk c;
  c.plain[0] = as_float16((uint16)(raw.vector[0], raw.vector[1], raw.vector[2], raw.vector[3]));
  c.plain[1] = as_float16((uint16)(raw.vector[4], raw.vector[5], raw.vector[6], raw.vector[7]));
  return c;
}
#else
float16 Widened(uint4 a, uint4 b) {
  const ushort16 bits = (ushort16)(as_ushort8(a), as_ushort8(b));
#if kType == kBF16
  return as_float16(convert_uint16(bits) << 16);
#elif defined(NVIDIA)
  Sixteen y;
  const uint words[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
  UNROLL for (uint i = 0; i < 8; ++i) {
    y.one[2 * i] = HalfToFloat(words[i] & 0xFFFFu);
    y.one[2 * i + 1] = HalfToFloat(words[i] >> 16);
  }
  return y.vector;
#else
  const uint16 wide = convert_uint16(bits);
  const uint16 sign = (wide & 0x8000u) << 16, exponent = wide & 0x7C00u;
  const uint16 magnitude = ((wide & 0x7FFFu) << 13) + (112u << 23);
  const uint16 small = as_uint16(convert_float16(wide & 0x3FFu) * 0x1p-24f);
  const uint16 large = select(magnitude, magnitude | 0x7F800000u, exponent == 0x7C00u);
  return as_float16(select(large, small, exponent == 0u) | sign);
#endif
}
Chunk Unpack(const RawChunk raw, uint chunk) {
  Chunk c;
  c.plain[0] = Widened(raw.vector[0], raw.vector[1]);
  c.plain[1] = Widened(raw.vector[2], raw.vector[3]);
  return c;
}
#endif

// Blocks of 32: codes, a word of high bits, and a scale, of some with a minimum.
#elif kBlock == 32
#define kHasHighBits (kType == kQ5_0 || kType == kQ5_1)
#define kHasMinimum (kType == kQ4_1 || kType == kQ5_1)

RawChunk Load(WeightRow row, uint chunk) {
  RawChunk raw;
  const uint vectors = kType == kQ8_0 ? 2 : 1;
  UNROLL for (uint i = 0; i < vectors; ++i) raw.vector[i] =
      Load128(row, (chunk * vectors + i) * 16);
  uint plane = row.blocks * vectors * 16;  // what follows the codes
  if (kHasHighBits) {
    raw.word[1] = Load32(row, plane + chunk * 4);
    plane += row.blocks * 4;
  }
  raw.word[0] = kHasMinimum ? Load32(row, plane + chunk * 4) : Load16(row, plane + chunk * 2);
  return raw;
}

Chunk Unpack(const RawChunk raw, uint chunk) {
  Chunk c;
  const float scale =
      kType == kMXFP4 ? BFloat16ToFloat(raw.word[0]) * 0.5f : HalfToFloat(raw.word[0] & 0xFFFFu);
  c.scale[0] = c.scale[1] = scale;
#if kHasMinimum
  c.offset[0] = c.offset[1] = HalfToFloat(raw.word[0] >> 16);
#endif
#if kType == kQ8_0
  c.codes[0] = raw.vector[0] ^ 0x80808080u;
  c.codes[1] = raw.vector[1] ^ 0x80808080u;
#else
  c.codes[0] = raw.vector[0] & kNibbles;
  c.codes[1] = (raw.vector[0] >> 4) & kNibbles;
#endif
#if kHasHighBits
  const uint high = raw.word[1];
  c.codes[0] |= (uint4)(Spread(high), Spread(high >> 4), Spread(high >> 8), Spread(high >> 12));
  c.codes[1] |=
      (uint4)(Spread(high >> 16), Spread(high >> 20), Spread(high >> 24), Spread(high >> 28));
#elif kType == kIQ4_NL
  c.codes[0] = Iq4(c.codes[0]);
  c.codes[1] = Iq4(c.codes[1]);
#elif kType == kMXFP4
  c.codes[0] = TwiceE2M1(c.codes[0]);
  c.codes[1] = TwiceE2M1(c.codes[1]);
#endif
  return c;
}

#elif kType == kNVFP4
RawChunk Load(WeightRow row, uint chunk) {
  RawChunk raw;
  raw.vector[0] = Load128(row, chunk * 16);
  raw.word[0] = Load32(row, row.blocks * 32 + (chunk >> 1) * 4);
  return raw;
}

Chunk Unpack(const RawChunk raw, uint chunk) {
  Chunk c;
  const uint scales = raw.word[0] >> ((chunk & 1) * 16);
  const uint4 low = raw.vector[0] & kNibbles, high = (raw.vector[0] >> 4) & kNibbles;
  c.scale[0] = UnsignedE4M3(scales & 255u) * 0.5f;
  c.scale[1] = UnsignedE4M3((scales >> 8) & 255u) * 0.5f;
  c.codes[0] = TwiceE2M1((uint4)(low.x, low.y, high.x, high.y));
  c.codes[1] = TwiceE2M1((uint4)(low.z, low.w, high.z, high.w));
  return c;
}

// q4_k and q5_k: a chunk has the low and the high nibbles of 16 bytes.
#elif kType == kQ4_K || kType == kQ5_K
RawChunk Load(WeightRow row, uint chunk) {
  RawChunk raw;
  const uint base = (chunk >> 3) * (kType == kQ4_K ? 144 : 176);
  raw.vector[0] = Load128(row, base + (kType == kQ4_K ? 16 : 48) + (chunk & 7) * 16);
  raw.vector[1] = Load128(row, base);  // factors, scales and minima
#if kType == kQ5_K
  raw.vector[2] = Load128(row, base + 16 + (chunk & 1) * 16);
#endif
  return raw;
}

// Scales and minima 2 * pair and the next of the twelve bytes, two bytes each.
uint2 ScalesMins(uint4 header, uint pair) {
  const uint3 bytes = header.yzw >> ((pair & 1u) * 16u);
  if (pair < 2u) return bytes.xy & 0x3F3Fu;
  return ((uint2)(bytes.z, bytes.z >> 4) & 0x0F0Fu) | ((bytes.xy >> 2) & 0x3030u);
}

Chunk Unpack(const RawChunk raw, uint chunk) {
  Chunk c;
  const uint pair = (chunk & 7) >> 1;
  const float d = HalfToFloat(raw.vector[1].x & 0xFFFFu);
  const float minimum = -HalfToFloat(raw.vector[1].x >> 16);
  const uint2 scales = ScalesMins(raw.vector[1], pair);
  c.scale[0] = d * (float)(scales.x & 255u);
  c.scale[1] = d * (float)((scales.x >> 8) & 255u);
  c.offset[0] = minimum * (float)(scales.y & 255u);
  c.offset[1] = minimum * (float)((scales.y >> 8) & 255u);
  c.codes[0] = raw.vector[0] & kNibbles;
  c.codes[1] = (raw.vector[0] >> 4) & kNibbles;
#if kType == kQ5_K
  const uint4 high = raw.vector[2] >> (pair * 2);
  c.codes[0] |= (high & 0x01010101u) << 4;
  c.codes[1] |= ((high >> 1) & 0x01010101u) << 4;
#endif
  return c;
}

#elif kType == kQ6_K
RawChunk Load(WeightRow row, uint chunk) {
  RawChunk raw;
  const uint block = chunk >> 3, sub = chunk & 7, base = block * 208;
  raw.vector[0] = Load128(row, base + sub * 16);
  raw.vector[1] = Load128(row, base + 128 + (sub >> 2) * 32 + (sub & 1) * 16);
  raw.vector[2] = Load128(row, base + 192);  // scales
  raw.word[0] = Load16(row, row.blocks * 208 + block * 2);
  return raw;
}

Chunk Unpack(const RawChunk raw, uint chunk) {
  Chunk c;
  const uint n = (chunk & 7) >> 2, piece = chunk & 3, upper = piece >> 1;
  const uint4 low = raw.vector[0], high = raw.vector[1] >> (upper * 2);
  const float d = HalfToFloat(raw.word[0]);
  const uint index = n * 8 + upper * 2 + (piece & 1);
  c.scale[0] = d * (float)(char)ByteOf(raw.vector[2], index);
  c.scale[1] = d * (float)(char)ByteOf(raw.vector[2], index + 4);
  c.codes[0] = (low & kNibbles) | ((high & 0x03030303u) << 4);
  c.codes[1] = ((low >> 4) & kNibbles) | (((high >> 4) & 0x03030303u) << 4);
  return c;
}

#elif kType == kIQ4_XS
RawChunk Load(WeightRow row, uint chunk) {
  RawChunk raw;
  const uint header = row.blocks * 128 + (chunk >> 3) * 8;
  raw.vector[0] = Load128(row, chunk * 16);
  raw.word[0] = Load32(row, header);
  raw.word[1] = Load32(row, header + 4);
  return raw;
}

Chunk Unpack(const RawChunk raw, uint chunk) {
  Chunk c;
  const uint run32 = chunk & 7;
  const uint low = (raw.word[1] >> (4 * run32)) & 15u;
  const uint high = (raw.word[0] >> (16 + 2 * run32)) & 3u;
  c.scale[0] = HalfToFloat(raw.word[0] & 0xFFFFu) * (float)((int)(low | (high << 4)) - 32);
  c.scale[1] = c.scale[0];
  c.codes[0] = Iq4(raw.vector[0] & kNibbles);
  c.codes[1] = Iq4((raw.vector[0] >> 4) & kNibbles);
  return c;
}

#else  // q2_k and q3_k
RawChunk Load(WeightRow row, uint chunk) {
  RawChunk raw;
  const uint block = chunk >> 3, n = (chunk & 7) >> 2;
  const uint codes = kType == kQ2_K ? block * 64 : row.blocks * 32 + block * 64;
  UNROLL for (uint run = 0; run < 2; ++run) {
    raw.vector[run] = Load128(row, codes + n * 32 + run * 16);
    if (kType == kQ3_K) raw.vector[3 + run] = Load128(row, block * 32 + run * 16);
  }
  raw.vector[2] = Load128(row, row.blocks * (kType == kQ2_K ? 64 : 96) + block * 16);  // scales
  if (kType == kQ2_K) raw.word[0] = Load32(row, row.blocks * 80 + block * 4);
  return raw;
}

Chunk Unpack(const RawChunk raw, uint chunk) {
  Chunk c;
  const uint n = (chunk & 7) >> 2, j = chunk & 3;
  const uint4 scales = raw.vector[2];
  const uint factors = kType == kQ2_K ? raw.word[0] : scales.w;
  const float d = HalfToFloat(factors & 0xFFFFu);
  UNROLL for (uint run = 0; run < 2; ++run) {
    const uint index = n * 8 + j * 2 + run;
    c.codes[run] = (raw.vector[run] >> (2 * j)) & 0x03030303u;
#if kType == kQ2_K
    const uint s = ByteOf(scales, index);
    c.scale[run] = d * (float)(s & 15u);
    c.offset[run] = -HalfToFloat(factors >> 16) * (float)(s >> 4);
#else
    c.codes[run] |= ((raw.vector[3 + run] >> (n * 4 + j)) & 0x01010101u) << 2;
    const uint low_byte = ByteOf(scales, index & 7u);
    const uint low = index < 8u ? low_byte & 15u : low_byte >> 4;
    const uint top = (ByteOf(scales, 8u + (index & 3u)) >> (2u * (index >> 2))) & 3u;
    c.scale[run] = d * (float)((int)(low | (top << 4)) - 32);
#endif
  }
  return c;
}
#endif

// First elements of the runs of a chunk.
uint2 ChunkAt(uint chunk) {
#if kType == kQ4_K || kType == kQ5_K
  const uint at = (chunk >> 3) * 256 + ((chunk & 7) >> 1) * 64 + (chunk & 1) * 16;
  return (uint2)(at, at + 32);
#elif kType == kQ6_K
  const uint piece = chunk & 3;
  const uint at = (chunk >> 2) * 128 + (piece >> 1) * 32 + (piece & 1) * 16;
  return (uint2)(at, at + 64);
#else
  return (uint2)(chunk * 32, chunk * 32 + 16);
#endif
}
#define RUN_AT(at, run) ((run) == 0 ? (at).x : (at).y)

// Chunks of a row of `k` elements.
#define CHUNKS(k, blocks) (kBlock == 1 ? ((k) + 31) / 32 : (blocks)*kBlock / 32)

Chunk Decode(WeightRow row, uint chunk) { return Unpack(Load(row, chunk), chunk); }

#if defined(CPU) && (kType == kQ4_K || kType == kQ5_K || kType == kQ6_K)
// Scales and offsets of the 16 runs of a block, two of each chunk in their order: what Unpack finds
// out eight times, with vectors once.
#define WHOLE_BLOCKS
typedef struct {
  float scale[16], offset[16];
} Factors;

Factors FactorsOf(WeightRow row, uint block) {
  Factors f;
#if kType == kQ6_K
  const float d = HalfToFloat(Load16(row, row.blocks * 208 + block * 2));
  Sixteen scales;
  scales.vector = convert_float16(as_char16(Load128(row, block * 208 + 192))) * d;
  UNROLL for (uint chunk = 0; chunk < 8; ++chunk) {
    const uint index = (chunk >> 2) * 8 + ((chunk & 3) >> 1) * 2 + (chunk & 1);
    f.scale[2 * chunk] = scales.one[index];
    f.scale[2 * chunk + 1] = scales.one[index + 4];
  }
#else
  const uint4 header = Load128(row, block * (kType == kQ4_K ? 144 : 176));
  const uint4 bytes =
      (uint4)(header.y & 0x3F3F3F3Fu, (header.w & kNibbles) | ((header.y >> 2) & 0x30303030u),
              header.z & 0x3F3F3F3Fu,
              ((header.w >> 4) & kNibbles) | ((header.z >> 2) & 0x30303030u));
  Sixteen factors;
  factors.vector = convert_float16(as_uchar16(bytes));
  const float d = HalfToFloat(header.x & 0xFFFFu), minimum = -HalfToFloat(header.x >> 16);
  UNROLL for (uint chunk = 0; chunk < 8; ++chunk) {
    UNROLL for (uint run = 0; run < 2; ++run) {
      const uint index = (chunk >> 1) * 2 + run;
      f.scale[2 * chunk + run] = d * factors.one[index];
      f.offset[2 * chunk + run] = minimum * factors.one[8 + index];
    }
  }
#endif
  return f;
}

Chunk DecodeWith(const Factors* f, WeightRow row, uint chunk) {
  Chunk c = Decode(row, chunk);
  UNROLL for (uint run = 0; run < 2; ++run) {
    c.scale[run] = f->scale[2 * (chunk & 7) + run];
    if (kHasOffset) c.offset[run] = f->offset[2 * (chunk & 7) + run];
  }
  return c;
}
#endif
