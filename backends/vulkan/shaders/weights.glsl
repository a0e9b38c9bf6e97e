// Weights in the layouts of weights.cc. A row is cut into chunks of 32 elements, each decoded as two
// runs of 16 consecutive elements with one scale and one offset: value = scale * code + offset.

// The type, as in dtypes.def.
layout(constant_id = 1) const uint kType = 0;

const uint kQ4_0 = 2, kQ4_1 = 3, kQ5_0 = 6, kQ5_1 = 7, kQ8_0 = 8, kQ2_K = 10, kQ3_K = 11, kQ4_K = 12,
           kQ5_K = 13, kQ6_K = 14, kIQ4_NL = 20, kIQ4_XS = 23, kMXFP4 = 39, kNVFP4 = 40;

const bool kHasOffset = kType == kQ4_1 || kType == kQ5_1 || kType == kQ2_K || kType == kQ4_K ||
                        kType == kQ5_K;

// A row of weights: where it begins and how many blocks it has.
struct WeightRow {
  uvec2 base;
  uint blocks;
};

// Elements of a block.
const uint kBlock = (kType == kF32 || kType == kF16 || kType == kBF16)      ? 1
                    : kType == kNVFP4                                        ? 64
                    : ((kType >= kQ2_K && kType <= kQ6_K) || kType == kIQ4_XS) ? 256
                                                                             : 32;

// Codes are bytes, four to a word, less the bias of their type; of plain types, floats.
struct Chunk {
  float scale[2];
  float offset[2];
  uint word[8];
  float plain[32];
};

const float kBias = kType == kQ4_0                       ? 8.0
                    : kType == kQ5_0                     ? 16.0
                    : kType == kQ6_K                     ? 32.0
                    : kType == kQ3_K                     ? 4.0
                    : (kType == kQ8_0 || kType == kIQ4_NL || kType == kIQ4_XS || kType == kMXFP4 ||
                       kType == kNVFP4)                  ? 128.0
                                                         : 0.0;

// A byte as a float without a conversion, which GPUs do at a fraction of their rate: put below the
// exponent of a power of two, it is added to it.
float Code(const Chunk c, uint i) {
  if (kBlock == 1) return c.plain[i];
  const uint word = (i & 2u) == 0 ? c.word[i >> 2] : c.word[i >> 2] >> 16;
  if ((i & 1u) == 0) return uintBitsToFloat((word & 0xFFu) | 0x4B000000u) - (8388608.0 + kBias);
  return uintBitsToFloat((word & 0xFF00u) | 0x47000000u) - (32768.0 + kBias);
}

const uint kNibbles = 0x0F0F0F0Fu;

// Four codes through a table of sixteen signed bytes, plus 128.
uint Lookup(const uint table[4], uint codes) {
  uint result = 0;
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    const uint code = (codes >> (8 * i)) & 15u;
    result |= ((table[code >> 2] >> ((code & 3u) * 8u)) & 255u) << (8 * i);
  }
  return result ^ 0x80808080u;
}
uint Iq4(uint codes) {
  // -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113
  return Lookup(uint[4](0xBFAD9881u, 0xF6EADDCFu, 0x26190D01u, 0x71594535u), codes);
}
// Twice the values of e2m1: 0, 1, 2, 3, 4, 6, 8, 12, and negative.
uint TwiceE2M1(uint codes) {
  return Lookup(uint[4](0x03020100u, 0x0C080604u, 0xFDFEFF00u, 0xF4F8FAFCu), codes);
}
float UnsignedE4M3(uint code) {
  if (code == 0u || code == 0x7Fu) return 0.0;
  const float mantissa = float(code & 7u);
  if ((code >> 3) == 0u) return mantissa * 0.001953125;
  return (1.0 + mantissa * 0.125) * uintBitsToFloat(((code >> 3) + 120u) << 23);
}

uint ByteOf(uvec4 word, uint i) { return (word[i >> 2] >> ((i & 3u) * 8u)) & 255u; }

// Four bits to bit 4 of four bytes.
uint Spread(uint bits) { return (((bits & 15u) * 0x00204081u) & 0x01010101u) << 4; }

// Two bytes at any even place, four at any multiple of four.
uint Load16(uvec2 base, uint offset) { return uint(U16(Advance(base, offset)).v[0]); }
uint Load32(uvec2 base, uint offset) { return U32(Advance(base, offset)).v[0]; }
uvec4 Load128(uvec2 base, uint offset) { return U32x4(Advance(base, offset)).v[0]; }
float LoadHalf(uvec2 base, uint offset) { return HalfToFloat(Load16(base, offset)); }

// Scales and minima 2 * pair and the next of the twelve bytes of q4_k and q5_k, two bytes each.
uvec2 ScalesMins(uvec4 header, uint pair) {
  const uvec3 bytes = header.yzw >> ((pair & 1u) * 16u);
  if (pair < 2u) return bytes.xy & 0x3F3Fu;
  return (uvec2(bytes.z, bytes.z >> 4) & 0x0F0Fu) | ((bytes.xy >> 2) & 0x3030u);
}

void DecodePlain(const WeightRow row, uint chunk, inout Chunk c) {
  if (kType == kF32) {
    [[unroll]] for (uint i = 0; i < 8; ++i) {
      const vec4 x = uintBitsToFloat(Load128(row.base, chunk * 128 + i * 16));
      [[unroll]] for (uint j = 0; j < 4; ++j) c.plain[i * 4 + j] = x[j];
    }
    return;
  }
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    const uvec4 x = Load128(row.base, chunk * 64 + i * 16);
    [[unroll]] for (uint j = 0; j < 4; ++j) {
      if (kType == kF16) {
        const vec2 pair = unpackHalf2x16(x[j]);
        c.plain[i * 8 + j * 2] = pair.x;
        c.plain[i * 8 + j * 2 + 1] = pair.y;
      } else {
        c.plain[i * 8 + j * 2] = uintBitsToFloat(x[j] << 16);
        c.plain[i * 8 + j * 2 + 1] = uintBitsToFloat(x[j] & 0xFFFF0000u);
      }
    }
  }
}

void DecodeBlock32(const WeightRow row, uint chunk, inout Chunk c) {
  const uint n = row.blocks;
  if (kType == kQ8_0) {
    const uvec4 a = Load128(row.base, chunk * 32);
    const uvec4 b = Load128(row.base, chunk * 32 + 16);
    [[unroll]] for (uint i = 0; i < 4; ++i) {
      c.word[i] = a[i] ^ 0x80808080u;
      c.word[4 + i] = b[i] ^ 0x80808080u;
    }
    c.scale[0] = c.scale[1] = LoadHalf(row.base, n * 32 + chunk * 2);
    return;
  }
  const uvec4 q = Load128(row.base, chunk * 16);
  uint high = 0;
  uint plane = n * 16;  // what follows the codes
  if (kType == kQ5_0 || kType == kQ5_1) {
    high = Load32(row.base, plane + chunk * 4);
    plane += n * 4;
  }
  if (kType == kQ4_1 || kType == kQ5_1) {
    const vec2 pair = unpackHalf2x16(Load32(row.base, plane + chunk * 4));
    c.scale[0] = c.scale[1] = pair.x;
    c.offset[0] = c.offset[1] = pair.y;
  } else if (kType == kMXFP4) {
    c.scale[0] = c.scale[1] = BFloat16ToFloat(Load16(row.base, plane + chunk * 2)) * 0.5;
  } else {
    c.scale[0] = c.scale[1] = LoadHalf(row.base, plane + chunk * 2);
  }
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    uint a = q[i] & kNibbles, b = (q[i] >> 4) & kNibbles;
    if (kType == kQ5_0 || kType == kQ5_1) {
      a |= Spread(high >> (4 * i));
      b |= Spread(high >> (16 + 4 * i));
    }
    if (kType == kIQ4_NL) {
      a = Iq4(a);
      b = Iq4(b);
    }
    if (kType == kMXFP4) {
      a = TwiceE2M1(a);
      b = TwiceE2M1(b);
    }
    c.word[i] = a;
    c.word[4 + i] = b;
  }
}

void DecodeNvfp4(const WeightRow row, uint chunk, inout Chunk c) {
  const uvec4 q = Load128(row.base, chunk * 16);
  const uint scales = Load32(row.base, row.blocks * 32 + (chunk >> 1) * 4) >> ((chunk & 1) * 16);
  [[unroll]] for (uint run = 0; run < 2; ++run) {
    c.scale[run] = UnsignedE4M3((scales >> (8 * run)) & 255u) * 0.5;
    [[unroll]] for (uint i = 0; i < 2; ++i) {
      c.word[run * 4 + i] = TwiceE2M1(q[run * 2 + i] & kNibbles);
      c.word[run * 4 + 2 + i] = TwiceE2M1((q[run * 2 + i] >> 4) & kNibbles);
    }
  }
}

// q4_k and q5_k: a chunk has the low and the high nibbles of 16 bytes.
void DecodeK45(const WeightRow row, uint chunk, inout Chunk c) {
  const uint sub = chunk & 7, pair = sub >> 1;
  const uint base = (chunk >> 3) * (kType == kQ4_K ? 144 : 176);
  const uvec4 header = Load128(row.base, base);
  const vec2 d = unpackHalf2x16(header.x);
  const uvec4 q = Load128(row.base, base + (kType == kQ4_K ? 16 : 48) + sub * 16);
  uvec4 high = uvec4(0);
  if (kType == kQ5_K) high = Load128(row.base, base + 16 + (sub & 1) * 16) >> (pair * 2);
  const uvec2 scales = ScalesMins(header, pair);
  [[unroll]] for (uint run = 0; run < 2; ++run) {
    c.scale[run] = d.x * float((scales.x >> (8 * run)) & 255u);
    c.offset[run] = -d.y * float((scales.y >> (8 * run)) & 255u);
    [[unroll]] for (uint i = 0; i < 4; ++i) {
      uint codes = (q[i] >> (4 * run)) & kNibbles;
      if (kType == kQ5_K) codes |= ((high[i] >> run) & 0x01010101u) << 4;
      c.word[run * 4 + i] = codes;
    }
  }
}

void DecodeQ6K(const WeightRow row, uint chunk, inout Chunk c) {
  const uint block = chunk >> 3, sub = chunk & 7, n = sub >> 2, piece = sub & 3;
  const uint upper = piece >> 1;
  const uint base = block * 208;
  const uvec4 low = Load128(row.base, base + sub * 16);
  const uvec4 high = Load128(row.base, base + 128 + n * 32 + (piece & 1) * 16) >> (upper * 2);
  const uvec4 scales = Load128(row.base, base + 192);
  const float d = LoadHalf(row.base, row.blocks * 208 + block * 2);
  [[unroll]] for (uint run = 0; run < 2; ++run) {
    const uint index = n * 8 + run * 4 + upper * 2 + (piece & 1);
    c.scale[run] = d * float(bitfieldExtract(int(scales[index >> 2]), int((index & 3) * 8), 8));
    [[unroll]] for (uint i = 0; i < 4; ++i) {
      c.word[run * 4 + i] = ((low[i] >> (4 * run)) & kNibbles) |
                            (((high[i] >> (4 * run)) & 0x03030303u) << 4);
    }
  }
}

void DecodeK23(const WeightRow row, uint chunk, inout Chunk c) {
  const uint block = chunk >> 3, n = (chunk & 7) >> 2, j = chunk & 3;
  const uint codes = kType == kQ2_K ? block * 64 : row.blocks * 32 + block * 64;
  const uint meta = kType == kQ2_K ? row.blocks * 64 + block * 16 : row.blocks * 96 + block * 16;
  const uvec4 scales = Load128(row.base, meta);
  vec2 d;
  if (kType == kQ2_K) d = unpackHalf2x16(Load32(row.base, row.blocks * 80 + block * 4));
  if (kType == kQ3_K) d.x = HalfToFloat(scales.w & 0xFFFFu);
  [[unroll]] for (uint run = 0; run < 2; ++run) {
    const uvec4 q = Load128(row.base, codes + n * 32 + run * 16) >> (2 * j);
    const uint index = n * 8 + j * 2 + run;
    uvec4 high = uvec4(0);
    if (kType == kQ2_K) {
      const uint s = ByteOf(scales, index);
      c.scale[run] = d.x * float(s & 15u);
      c.offset[run] = -d.y * float(s >> 4);
    } else {
      high = Load128(row.base, block * 32 + run * 16) >> (n * 4 + j);
      const uint low_byte = ByteOf(scales, index & 7u);
      const uint low = index < 8u ? low_byte & 15u : low_byte >> 4;
      const uint top = (ByteOf(scales, 8u + (index & 3u)) >> (2u * (index >> 2))) & 3u;
      c.scale[run] = d.x * float(int(low | (top << 4)) - 32);
    }
    [[unroll]] for (uint i = 0; i < 4; ++i) {
      c.word[run * 4 + i] = (q[i] & 0x03030303u) | ((high[i] & 0x01010101u) << 2);
    }
  }
}

void DecodeIq4Xs(const WeightRow row, uint chunk, inout Chunk c) {
  const uint block = chunk >> 3, run32 = chunk & 7;
  const uvec4 q = Load128(row.base, chunk * 16);
  const uint first = Load32(row.base, row.blocks * 128 + block * 8);
  const uint low = Load32(row.base, row.blocks * 128 + block * 8 + 4);
  const uint scale = ((low >> (4 * run32)) & 15u) | (((first >> (16 + 2 * run32)) & 3u) << 4);
  c.scale[0] = c.scale[1] = HalfToFloat(first & 0xFFFFu) * float(int(scale) - 32);
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    c.word[i] = Iq4(q[i] & kNibbles);
    c.word[4 + i] = Iq4((q[i] >> 4) & kNibbles);
  }
}

// First elements of the runs of a chunk.
uvec2 ChunkAt(uint chunk) {
  if (kType == kQ4_K || kType == kQ5_K) {
    const uint at = (chunk >> 3) * 256 + ((chunk & 7) >> 1) * 64 + (chunk & 1) * 16;
    return uvec2(at, at + 32);
  }
  if (kType == kQ6_K) {
    const uint piece = chunk & 3;
    const uint at = (chunk >> 2) * 128 + (piece >> 1) * 32 + (piece & 1) * 16;
    return uvec2(at, at + 64);
  }
  return uvec2(chunk * 32, chunk * 32 + 16);
}

// Element i of a chunk's 32.
float ValueAt(const Chunk c, uint i) {
  const float value = Code(c, i) * c.scale[i >> 4];
  return kHasOffset ? value + c.offset[i >> 4] : value;
}

Chunk Decode(const WeightRow row, uint chunk) {
  Chunk c;
  c.scale[0] = c.scale[1] = 1.0;
  c.offset[0] = c.offset[1] = 0.0;
  if (kBlock == 1) {
    DecodePlain(row, chunk, c);
  } else if (kBlock == 32) {
    DecodeBlock32(row, chunk, c);
  } else if (kType == kNVFP4) {
    DecodeNvfp4(row, chunk, c);
  } else if (kType == kQ4_K || kType == kQ5_K) {
    DecodeK45(row, chunk, c);
  } else if (kType == kQ6_K) {
    DecodeQ6K(row, chunk, c);
  } else if (kType == kIQ4_XS) {
    DecodeIq4Xs(row, chunk, c);
  } else {
    DecodeK23(row, chunk, c);
  }
  return c;
}
