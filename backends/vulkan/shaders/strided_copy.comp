#version 460
// Copies and converts elements: copy, slice, concat (twice), pad, reshape, cast, where,
// gather_last.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "strided_copy.args.glsl"

float LoadFloat(uvec2 base, uint i) {
  if (kFrom == kF32) return F32(base).v[i];
  const uint bits = uint(U16(base).v[i]);
  return kFrom == kF16 ? HalfToFloat(bits) : BFloat16ToFloat(bits);
}

// Towards zero, at most the ends of the range, 0 for not-a-number.
int Truncate(float x) {
  if (IsNan(x)) return 0;
  if (x >= 2147483648.0) return 2147483647;
  if (x <= -2147483648.0) return -2147483647 - 1;
  return int(x);
}

// To nearest even: shaders may round a conversion either way.
float NearestFloat(int x) {
  const bool negative = x < 0;
  const uint m = negative ? uint(-(x + 1)) + 1u : uint(x);
  const int top = findMSB(m);
  if (top < 24) return float(x);
  const int shift = top - 23;
  const uint low = m & ((1u << shift) - 1u);
  const uint middle = 1u << (shift - 1);
  uint kept = m >> shift;
  if (low > middle || (low == middle && (kept & 1u) != 0u)) ++kept;
  const float y = float(kept) * uintBitsToFloat(uint(shift + 127) << 23);
  return negative ? -y : y;
}

void StoreFloat(uvec2 base, uint i, float value) {
  if (kTo == kF32) {
    F32(base).v[i] = value;
  } else {
    U16(base).v[i] = uint16_t(kTo == kF16 ? FloatToHalf(value) : FloatToBFloat16(value));
  }
}

void Cast(uint from, uint to) {
  if (kFrom == kTo) {
    if (kFrom == kF32 || kFrom == kI32) {
      U32(p.y).v[to] = U32(p.x).v[from];
    } else {
      U16(p.y).v[to] = U16(p.x).v[from];
    }
  } else if (kFrom == kI32) {
    StoreFloat(p.y, to, NearestFloat(I32(p.x).v[from]));
  } else if (kTo == kI32) {
    I32(p.y).v[to] = Truncate(LoadFloat(p.x, from));
  } else {
    StoreFloat(p.y, to, LoadFloat(p.x, from));
  }
}

void CopyOne(uvec2 source, uint from, uint to) {
  if (kFrom == 4) {
    U32(p.y).v[to] = U32(source).v[from];
  } else {
    U16(p.y).v[to] = U16(source).v[from];
  }
}

void GatherLast(uint row) {
  const int index = I32(p.b).v[row];
  if (index >= int(p.x_stride)) {
    Step(p.step).failed_op = p.op;
  } else if (index >= 0) {
    U32(p.y).v[row] = U32(p.x).v[row * p.x_stride + uint(index)];
  } else {
    U32(p.y).v[row] = kFrom == kI32 ? 0xFFFFFFFFu : 0x7FC00000u;
  }
}

void main() {
  const uint count = At(p.rows, Step(p.step)) * p.inner;
  for (uint i = INVOCATION; i < count; i += GROUPS.x * gl_WorkGroupSize.x) {
    const uint row = i / p.inner;
    const uint column = i % p.inner;
    if (kOp == kCopy) {
      CopyOne(p.x, row * p.x_stride + p.x_offset + column, row * p.y_stride + p.y_offset + column);
    } else if (kOp == kCast) {
      Cast(i, i);
    } else if (kOp == kWhere) {
      const bool chosen = (U32(p.condition).v[i] & 0x7FFFFFFFu) != 0u;
      CopyOne(chosen ? p.x : p.b, i, i);
    } else if (kOp == kPad) {
      const uint from = column - p.x_offset;  // beyond every column where that is negative
      if (from < p.x_stride) {
        CopyOne(p.x, row * p.x_stride + from, i);
      } else if (kFrom == 4) {
        U32(p.y).v[i] = 0;
      } else {
        U16(p.y).v[i] = uint16_t(0);
      }
    } else {
      GatherLast(i);
    }
  }
}
