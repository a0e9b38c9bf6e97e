// Weights in the layouts of weights.cc. A row is cut into chunks of 32 elements, each decoded as
// two runs of 16 consecutive elements with one scale and one offset: value = scale * code + offset.

// The type is kType.

const bool kHasOffset =
    kType == kQ4_1 || kType == kQ5_1 || kType == kQ2_K || kType == kQ4_K || kType == kQ5_K;

// A row of weights: where it begins and how many blocks it has.
struct WeightRow {
  uvec2 base;
  uint blocks;
};

// Elements of a block.
const uint kBlock = (kType == kF32 || kType == kF16 || kType == kBF16)         ? 1
                    : kType == kNVFP4                                          ? 64
                    : ((kType >= kQ2_K && kType <= kQ6_K) || kType == kIQ4_XS) ? 256
                                                                               : 32;

// Codes are bytes, four to a word, less the bias of their type; of plain types, floats.
struct Chunk {
  float scale[2];
  float offset[2];
  uint word[8];
  float plain[32];
};

const float kBias =
    kType == kQ4_0   ? 8.0
    : kType == kQ5_0 ? 16.0
    : kType == kQ6_K ? 32.0
    : kType == kQ3_K ? 4.0
    : (kType == kQ8_0 || kType == kIQ4_NL || kType == kIQ4_XS || kType == kMXFP4 || kType == kNVFP4)
        ? 128.0
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

// By a choice: an index would put the vector into memory.
uint WordOf(uvec4 words, uint i) {
  return i < 2u ? (i == 0u ? words.x : words.y) : (i == 2u ? words.z : words.w);
}
uint ByteOf(uvec4 words, uint i) { return (WordOf(words, i >> 2) >> ((i & 3u) * 8u)) & 255u; }

// Four bits to bit 4 of four bytes.
uint Spread(uint bits) { return (((bits & 15u) * 0x00204081u) & 0x01010101u) << 4; }

// A row of weights as words of 4 and vectors of 16 bytes, from its base on.
layout(buffer_reference, std430, buffer_reference_align = 4) CONSTANT Weights32 { uint v[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) CONSTANT Weights128 { uvec4 v[]; };
uint Load32(const WeightRow row, uint at) { return Weights32(row.base).v[at]; }
uvec4 Load128(const WeightRow row, uint at) { return Weights128(row.base).v[at]; }

// Scales and minima 2 * pair and the next of the twelve bytes of q4_k and q5_k, two bytes each.
uvec2 ScalesMins(uvec4 header, uint pair) {
  const uvec3 bytes = header.yzw >> ((pair & 1u) * 16u);
  if (pair < 2u) return bytes.xy & 0x3F3Fu;
  return (uvec2(bytes.z, bytes.z >> 4) & 0x0F0Fu) | ((bytes.xy >> 2) & 0x3030u);
}

// Number `i` of two bytes of those that a word has been loaded for. The word is taken apart no
// sooner than it is used: that would wait for it.
uint HalfOf(uint word, uint i) { return (word >> ((i & 1u) * 16u)) & 0xFFFFu; }

// The bytes that a chunk is decoded from, as they lie in memory (Load).
struct RawChunk {
  uvec4 vector[8];
  uint word[2];
};

void LoadPlain(const WeightRow row, uint chunk, inout RawChunk raw) {
  const uint vectors = kType == kF32 ? 8 : 4;
  [[unroll]] for (uint i = 0; i < vectors; ++i) {
    raw.vector[i] = Load128(row, chunk * vectors + i);
  }
}

void UnpackPlain(const RawChunk raw, inout Chunk c) {
  if (kType == kF32) {
    [[unroll]] for (uint i = 0; i < 32; ++i) c.plain[i] = uintBitsToFloat(raw.vector[i / 4][i & 3]);
    return;
  }
  [[unroll]] for (uint i = 0; i < 16; ++i) {
    const uint bits = raw.vector[i / 4][i & 3];
    const vec2 pair = kType == kF16 ? unpackHalf2x16(bits)
                                    : uintBitsToFloat(uvec2(bits << 16, bits & 0xFFFF0000u));
    c.plain[i * 2] = pair.x;
    c.plain[i * 2 + 1] = pair.y;
  }
}

// Blocks of 32: codes, a word of high bits, and a scale, of some with a minimum.
const bool kHasHighBits = kType == kQ5_0 || kType == kQ5_1;
const bool kHasMinimum = kType == kQ4_1 || kType == kQ5_1;

void LoadBlock32(const WeightRow row, uint chunk, inout RawChunk raw) {
  const uint vectors = kType == kQ8_0 ? 2 : 1;
  [[unroll]] for (uint i = 0; i < vectors; ++i) {
    raw.vector[i] = Load128(row, chunk * vectors + i);
  }
  uint plane = row.blocks * vectors * 4;  // what follows the codes, in words
  if (kHasHighBits) {
    raw.word[1] = Load32(row, plane + chunk);
    plane += row.blocks;
  }
  raw.word[0] = Load32(row, plane + (kHasMinimum ? chunk : chunk >> 1));
}

void UnpackBlock32(const RawChunk raw, uint chunk, inout Chunk c) {
  if (kHasMinimum) c.offset[0] = c.offset[1] = unpackHalf2x16(raw.word[0]).y;
  const uint scale = kHasMinimum ? raw.word[0] & 0xFFFFu : HalfOf(raw.word[0], chunk);
  c.scale[0] = c.scale[1] = kType == kMXFP4 ? BFloat16ToFloat(scale) * 0.5 : HalfToFloat(scale);
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    uint a = raw.vector[0][i] & kNibbles, b = (raw.vector[0][i] >> 4) & kNibbles;
    if (kType == kQ8_0) {
      a = raw.vector[0][i] ^ 0x80808080u;
      b = raw.vector[1][i] ^ 0x80808080u;
    }
    if (kHasHighBits) {
      a |= Spread(raw.word[1] >> (4 * i));
      b |= Spread(raw.word[1] >> (16 + 4 * i));
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

void LoadNvfp4(const WeightRow row, uint chunk, inout RawChunk raw) {
  raw.vector[0] = Load128(row, chunk);
  raw.word[0] = Load32(row, row.blocks * 8 + (chunk >> 1));
}

void UnpackNvfp4(const RawChunk raw, uint chunk, inout Chunk c) {
  const uint scales = raw.word[0] >> ((chunk & 1) * 16);
  const uvec4 q = raw.vector[0];
  [[unroll]] for (uint run = 0; run < 2; ++run) {
    c.scale[run] = UnsignedE4M3((scales >> (8 * run)) & 255u) * 0.5;
    [[unroll]] for (uint i = 0; i < 2; ++i) {
      c.word[run * 4 + i] = TwiceE2M1(q[run * 2 + i] & kNibbles);
      c.word[run * 4 + 2 + i] = TwiceE2M1((q[run * 2 + i] >> 4) & kNibbles);
    }
  }
}

// q4_k and q5_k: a chunk has the low and the high nibbles of 16 bytes.
void LoadK45(const WeightRow row, uint chunk, inout RawChunk raw) {
  const uint base = (chunk >> 3) * (kType == kQ4_K ? 9 : 11);
  raw.vector[0] = Load128(row, base + (kType == kQ4_K ? 1 : 3) + (chunk & 7));
  raw.vector[1] = Load128(row, base);  // factors, scales and minima
  if (kType == kQ5_K) raw.vector[2] = Load128(row, base + 1 + (chunk & 1));
}

void UnpackK45(const RawChunk raw, uint chunk, inout Chunk c) {
  const uint pair = (chunk & 7) >> 1;
  const vec2 d = unpackHalf2x16(raw.vector[1].x);
  const uvec4 q = raw.vector[0], high = raw.vector[2] >> (pair * 2);
  const uvec2 scales = ScalesMins(raw.vector[1], pair);
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

void LoadQ6K(const WeightRow row, uint chunk, inout RawChunk raw) {
  const uint block = chunk >> 3, sub = chunk & 7, base = block * 13;
  raw.vector[0] = Load128(row, base + sub);
  raw.vector[1] = Load128(row, base + 8 + (sub >> 2) * 2 + (sub & 1));
  raw.vector[2] = Load128(row, base + 12);  // scales
  raw.word[0] = Load32(row, row.blocks * 52 + (block >> 1));
}

void UnpackQ6K(const RawChunk raw, uint chunk, inout Chunk c) {
  const uint n = (chunk & 7) >> 2, piece = chunk & 3, upper = piece >> 1;
  const uvec4 low = raw.vector[0], high = raw.vector[1] >> (upper * 2), scales = raw.vector[2];
  const float d = HalfToFloat(HalfOf(raw.word[0], chunk >> 3));
  [[unroll]] for (uint run = 0; run < 2; ++run) {
    const uint word = WordOf(scales, n * 2 + run);
    c.scale[run] = d * float(bitfieldExtract(int(word), int(piece * 8), 8));
    [[unroll]] for (uint i = 0; i < 4; ++i) {
      c.word[run * 4 + i] =
          ((low[i] >> (4 * run)) & kNibbles) | (((high[i] >> (4 * run)) & 0x03030303u) << 4);
    }
  }
}

void LoadK23(const WeightRow row, uint chunk, inout RawChunk raw) {
  const uint block = chunk >> 3, n = (chunk & 7) >> 2;
  const uint codes = kType == kQ2_K ? block * 4 : row.blocks * 2 + block * 4;
  [[unroll]] for (uint run = 0; run < 2; ++run) {
    raw.vector[run] = Load128(row, codes + n * 2 + run);
    if (kType == kQ3_K) raw.vector[3 + run] = Load128(row, block * 2 + run);
  }
  raw.vector[2] = Load128(row, row.blocks * (kType == kQ2_K ? 4 : 6) + block);  // scales
  if (kType == kQ2_K) raw.word[0] = Load32(row, row.blocks * 20 + block);
}

void UnpackK23(const RawChunk raw, uint chunk, inout Chunk c) {
  const uint n = (chunk & 7) >> 2, j = chunk & 3;
  const uvec4 scales = raw.vector[2];
  const vec2 d = unpackHalf2x16(kType == kQ2_K ? raw.word[0] : scales.w);
  [[unroll]] for (uint run = 0; run < 2; ++run) {
    const uvec4 q = raw.vector[run] >> (2 * j);
    const uint index = n * 8 + j * 2 + run;
    uvec4 high = uvec4(0);
    if (kType == kQ2_K) {
      const uint s = ByteOf(scales, index);
      c.scale[run] = d.x * float(s & 15u);
      c.offset[run] = -d.y * float(s >> 4);
    } else {
      high = raw.vector[3 + run] >> (n * 4 + j);
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

void LoadIq4Xs(const WeightRow row, uint chunk, inout RawChunk raw) {
  const uint header = row.blocks * 32 + (chunk >> 3) * 2;
  raw.vector[0] = Load128(row, chunk);
  raw.word[0] = Load32(row, header);
  raw.word[1] = Load32(row, header + 1);
}

void UnpackIq4Xs(const RawChunk raw, uint chunk, inout Chunk c) {
  const uint run32 = chunk & 7;
  const uint low = (raw.word[1] >> (4 * run32)) & 15u;
  const uint high = (raw.word[0] >> (16 + 2 * run32)) & 3u;
  c.scale[0] = c.scale[1] = HalfToFloat(raw.word[0] & 0xFFFFu) * float(int(low | (high << 4)) - 32);
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    c.word[i] = Iq4(raw.vector[0][i] & kNibbles);
    c.word[4 + i] = Iq4((raw.vector[0][i] >> 4) & kNibbles);
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

// A chunk is loaded and unpacked in two steps, so that work may be put between them.
RawChunk Load(const WeightRow row, uint chunk) {
  // All of it is set: in a loop, and in a step of one dispatch all is one, the rest would be kept.
  RawChunk raw;
  [[unroll]] for (uint i = 0; i < 8; ++i) raw.vector[i] = uvec4(0);
  raw.word[0] = raw.word[1] = 0;
  if (kBlock == 1) {
    LoadPlain(row, chunk, raw);
  } else if (kBlock == 32) {
    LoadBlock32(row, chunk, raw);
  } else if (kType == kNVFP4) {
    LoadNvfp4(row, chunk, raw);
  } else if (kType == kQ4_K || kType == kQ5_K) {
    LoadK45(row, chunk, raw);
  } else if (kType == kQ6_K) {
    LoadQ6K(row, chunk, raw);
  } else if (kType == kIQ4_XS) {
    LoadIq4Xs(row, chunk, raw);
  } else {
    LoadK23(row, chunk, raw);
  }
  return raw;
}

Chunk Unpack(const RawChunk raw, uint chunk) {
  Chunk c;
  [[unroll]] for (uint i = 0; i < 8; ++i) c.word[i] = 0;
  [[unroll]] for (uint i = 0; i < 32; ++i) c.plain[i] = 0.0;
  c.scale[0] = c.scale[1] = 1.0;
  c.offset[0] = c.offset[1] = 0.0;
  if (kBlock == 1) {
    UnpackPlain(raw, c);
  } else if (kBlock == 32) {
    UnpackBlock32(raw, chunk, c);
  } else if (kType == kNVFP4) {
    UnpackNvfp4(raw, chunk, c);
  } else if (kType == kQ4_K || kType == kQ5_K) {
    UnpackK45(raw, chunk, c);
  } else if (kType == kQ6_K) {
    UnpackQ6K(raw, chunk, c);
  } else if (kType == kIQ4_XS) {
    UnpackIq4Xs(raw, chunk, c);
  } else {
    UnpackK23(raw, chunk, c);
  }
  return c;
}

Chunk Decode(const WeightRow row, uint chunk) { return Unpack(Load(row, chunk), chunk); }
