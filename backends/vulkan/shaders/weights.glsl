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

struct Chunk {
  uint at[2];  // first elements of the runs
  float scale[2];
  float offset[2];
  float code[32];
};

float Iq4(uint code) {
  // -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113
  const uint table[4] = uint[4](0xBFAD9881u, 0xF6EADDCFu, 0x26190D01u, 0x71594535u);
  return float(bitfieldExtract(int(table[code >> 2]), int((code & 3u) * 8u), 8));
}
// Twice the value of e2m1: 0, 1, 2, 3, 4, 6, 8, 12, and negative.
float TwiceE2M1(uint code) {
  const float magnitude = float((0xC8643210u >> ((code & 7u) * 4u)) & 15u);
  return (code & 8u) != 0u ? -magnitude : magnitude;
}
float UnsignedE4M3(uint code) {
  if (code == 0u || code == 0x7Fu) return 0.0;
  const float mantissa = float(code & 7u);
  if ((code >> 3) == 0u) return mantissa * 0.001953125;
  return (1.0 + mantissa * 0.125) * uintBitsToFloat(((code >> 3) + 120u) << 23);
}

uint ByteOf(uvec4 word, uint i) { return (word[i >> 2] >> ((i & 3u) * 8u)) & 255u; }

// Two bytes at any even place, four at any multiple of four.
uint Load16(uvec2 base, uint offset) { return uint(U16(Advance(base, offset)).v[0]); }
uint Load32(uvec2 base, uint offset) { return U32(Advance(base, offset)).v[0]; }
uvec4 Load128(uvec2 base, uint offset) { return U32x4(Advance(base, offset)).v[0]; }
float LoadHalf(uvec2 base, uint offset) { return HalfToFloat(Load16(base, offset)); }

// Scale and minimum j of the twelve bytes of q4_k and q5_k.
uvec2 ScaleMin(uvec4 header, uint j) {
  const uint k = j & 3u;
  const uint a = (header.y >> (8u * k)) & 255u;
  const uint b = (header.z >> (8u * k)) & 255u;
  if (j < 4u) return uvec2(a & 63u, b & 63u);
  const uint c = (header.w >> (8u * k)) & 255u;
  return uvec2((c & 15u) | ((a >> 6) << 4), (c >> 4) | ((b >> 6) << 4));
}

void DecodePlain(const WeightRow row, uint chunk, inout Chunk c) {
  if (kType == kF32) {
    [[unroll]] for (uint i = 0; i < 8; ++i) {
      const vec4 x = uintBitsToFloat(Load128(row.base, chunk * 128 + i * 16));
      [[unroll]] for (uint j = 0; j < 4; ++j) c.code[i * 4 + j] = x[j];
    }
    return;
  }
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    const uvec4 x = Load128(row.base, chunk * 64 + i * 16);
    [[unroll]] for (uint j = 0; j < 4; ++j) {
      if (kType == kF16) {
        const vec2 pair = unpackHalf2x16(x[j]);
        c.code[i * 8 + j * 2] = pair.x;
        c.code[i * 8 + j * 2 + 1] = pair.y;
      } else {
        c.code[i * 8 + j * 2] = uintBitsToFloat(x[j] << 16);
        c.code[i * 8 + j * 2 + 1] = uintBitsToFloat(x[j] & 0xFFFF0000u);
      }
    }
  }
}

void DecodeBlock32(const WeightRow row, uint chunk, inout Chunk c) {
  const uint n = row.blocks;
  if (kType == kQ8_0) {
    const uvec4 a = Load128(row.base, chunk * 32);
    const uvec4 b = Load128(row.base, chunk * 32 + 16);
    [[unroll]] for (uint i = 0; i < 16; ++i) {
      c.code[i] = float(bitfieldExtract(int(a[i >> 2]), int((i & 3) * 8), 8));
      c.code[16 + i] = float(bitfieldExtract(int(b[i >> 2]), int((i & 3) * 8), 8));
    }
    const float d = LoadHalf(row.base, n * 32 + chunk * 2);
    c.scale[0] = c.scale[1] = d;
    return;
  }
  const uvec4 q = Load128(row.base, chunk * 16);
  uint high = 0;
  uint plane = n * 16;  // what follows the codes
  if (kType == kQ5_0 || kType == kQ5_1) {
    high = Load32(row.base, plane + chunk * 4);
    plane += n * 4;
  }
  float d, m = 0.0;
  if (kType == kQ4_1 || kType == kQ5_1) {
    const vec2 pair = unpackHalf2x16(Load32(row.base, plane + chunk * 4));
    d = pair.x;
    m = pair.y;
  } else if (kType == kMXFP4) {
    d = BFloat16ToFloat(Load16(row.base, plane + chunk * 2)) * 0.5;
  } else {
    d = LoadHalf(row.base, plane + chunk * 2);
  }
  c.scale[0] = c.scale[1] = d;
  c.offset[0] = c.offset[1] = m;
  [[unroll]] for (uint i = 0; i < 16; ++i) {
    const uint byte = ByteOf(q, i);
    uint a = byte & 15u, b = byte >> 4;
    if (kType == kQ5_0 || kType == kQ5_1) {
      a |= ((high >> i) & 1u) << 4;
      b |= ((high >> (i + 16)) & 1u) << 4;
    }
    if (kType == kIQ4_NL) {
      c.code[i] = Iq4(a);
      c.code[16 + i] = Iq4(b);
    } else if (kType == kMXFP4) {
      c.code[i] = TwiceE2M1(a);
      c.code[16 + i] = TwiceE2M1(b);
    } else {
      const int bias = kType == kQ4_0 ? 8 : kType == kQ5_0 ? 16 : 0;
      c.code[i] = float(int(a) - bias);
      c.code[16 + i] = float(int(b) - bias);
    }
  }
}

void DecodeNvfp4(const WeightRow row, uint chunk, inout Chunk c) {
  const uvec4 q = Load128(row.base, chunk * 16);
  const uint scales = Load32(row.base, row.blocks * 32 + (chunk >> 1) * 4) >> ((chunk & 1) * 16);
  [[unroll]] for (uint run = 0; run < 2; ++run) {
    c.scale[run] = UnsignedE4M3((scales >> (8 * run)) & 255u) * 0.5;
    [[unroll]] for (uint i = 0; i < 8; ++i) {
      const uint byte = ByteOf(q, run * 8 + i);
      c.code[run * 16 + i] = TwiceE2M1(byte & 15u);
      c.code[run * 16 + 8 + i] = TwiceE2M1(byte >> 4);
    }
  }
}

// q4_k and q5_k: a chunk has the low and the high nibbles of 16 bytes.
void DecodeK45(const WeightRow row, uint chunk, inout Chunk c) {
  const uint sub = chunk & 7, pair = sub >> 1, half_run = (sub & 1) * 16;
  const uint base = (chunk >> 3) * (kType == kQ4_K ? 144 : 176);
  const uvec4 header = Load128(row.base, base);
  const vec2 d = unpackHalf2x16(header.x);
  const uvec4 q = Load128(row.base, base + (kType == kQ4_K ? 16 : 48) + sub * 16);
  uvec4 high = uvec4(0);
  if (kType == kQ5_K) high = Load128(row.base, base + 16 + half_run);
  [[unroll]] for (uint run = 0; run < 2; ++run) {
    const uvec2 scale = ScaleMin(header, pair * 2 + run);
    c.scale[run] = d.x * float(scale.x);
    c.offset[run] = -d.y * float(scale.y);
    [[unroll]] for (uint i = 0; i < 16; ++i) {
      uint code = (ByteOf(q, i) >> (4 * run)) & 15u;
      if (kType == kQ5_K) code |= ((ByteOf(high, i) >> (pair * 2 + run)) & 1u) << 4;
      c.code[run * 16 + i] = float(code);
    }
  }
}

void DecodeQ6K(const WeightRow row, uint chunk, inout Chunk c) {
  const uint block = chunk >> 3, sub = chunk & 7, n = sub >> 2, piece = sub & 3;
  const uint upper = piece >> 1, first = (piece & 1) * 16;
  const uint base = block * 208;
  const uvec4 low = Load128(row.base, base + sub * 16);
  const uvec4 high = Load128(row.base, base + 128 + n * 32 + first);
  const uvec4 scales = Load128(row.base, base + 192);
  const float d = LoadHalf(row.base, row.blocks * 208 + block * 2);
  [[unroll]] for (uint run = 0; run < 2; ++run) {
    const uint index = n * 8 + run * 4 + upper * 2 + (piece & 1);
    c.scale[run] = d * float(bitfieldExtract(int(scales[index >> 2]), int((index & 3) * 8), 8));
    const uint shift = run * 4 + upper * 2;
    [[unroll]] for (uint i = 0; i < 16; ++i) {
      const uint code = ((ByteOf(low, i) >> (4 * run)) & 15u) |
                        (((ByteOf(high, i) >> shift) & 3u) << 4);
      c.code[run * 16 + i] = float(int(code) - 32);
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
    const uvec4 q = Load128(row.base, codes + n * 32 + run * 16);
    const uint index = n * 8 + j * 2 + run;
    if (kType == kQ2_K) {
      const uint s = ByteOf(scales, index);
      c.scale[run] = d.x * float(s & 15u);
      c.offset[run] = -d.y * float(s >> 4);
      [[unroll]] for (uint i = 0; i < 16; ++i) {
        c.code[run * 16 + i] = float((ByteOf(q, i) >> (2 * j)) & 3u);
      }
      continue;
    }
    const uvec4 high = Load128(row.base, block * 32 + run * 16);
    const uint low_byte = ByteOf(scales, index & 7u);
    const uint low = index < 8u ? low_byte & 15u : low_byte >> 4;
    const uint top = (ByteOf(scales, 8u + (index & 3u)) >> (2u * (index >> 2))) & 3u;
    c.scale[run] = d.x * float(int(low | (top << 4)) - 32);
    [[unroll]] for (uint i = 0; i < 16; ++i) {
      const int code = int((ByteOf(q, i) >> (2 * j)) & 3u);
      const uint bit = (ByteOf(high, i) >> (n * 4 + j)) & 1u;
      c.code[run * 16 + i] = float(bit != 0u ? code : code - 4);
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
  [[unroll]] for (uint i = 0; i < 16; ++i) {
    c.code[i] = Iq4(ByteOf(q, i) & 15u);
    c.code[16 + i] = Iq4(ByteOf(q, i) >> 4);
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

Chunk Decode(const WeightRow row, uint chunk) {
  Chunk c;
  const uvec2 at = ChunkAt(chunk);
  c.at[0] = at.x;
  c.at[1] = at.y;
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
