// Addition of low-rank adapters to the sums of a tile (LowRank in kernels.def): sums of
// low_rank_inner.kernel times B, both as sums of two f16 numbers, 16 terms at a time. shared_tile
// has rows of sums, then rows of B for the results of a half: of each the 16 high numbers, then the
// low ones. After them it has for each of these rows the unit that its numbers were divided by.
#include "high_low.kernel"

const uint kAdapterTerms = 16;
const uint kAdapterPitch = 5;  // vectors: 2 of high and 2 of low numbers, and one between rows
const uint kUnits = (kTile + kResults) * kAdapterPitch;

vec4[4] TermsFrom(uvec2 row, uint first_term, uint terms) {
  vec4 x[4];
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    const uint term = first_term + i * 4;
    x[i] = term < terms ? F32x4(row).v[term / 4] : vec4(0);
  }
  return x;
}

// Stores a row. Its unit is times `also`.
void StageTerms(uint row, const vec4 x[4], float also) {
  const vec4 most = max(max(abs(x[0]), abs(x[1])), max(abs(x[2]), abs(x[3])));
  const float unit = UnitOf(max(max(most.x, most.y), max(most.z, most.w)));
  const float down = Inverse(unit);
  [[unroll]] for (uint i = 0; i < 2; ++i) {
    uvec4 high, low;
    [[unroll]] for (uint j = 0; j < 4; ++j) {
      const vec4 quad = x[i * 2 + j / 2] * down;
      const uvec2 parts = HighLow((j & 1) == 0 ? quad.xy : quad.zw);
      high[j] = parts.x;
      low[j] = parts.y;
    }
    shared_tile[row * kAdapterPitch + i] = high;
    shared_tile[row * kAdapterPitch + 2 + i] = low;
  }
  const uvec4 units = uvec4(floatBitsToUint(unit * also));
  [[unroll]] for (uint i = 0; i < kFactorPitch; ++i) {
    shared_tile[kUnits + row * kFactorPitch + i] = units;
  }
}

void StageLowRank(const LowRank adapter, uint half_glu, uint first_term, uint first_result) {
  const uvec2 b = half_glu == 0 ? adapter.b : adapter.b2;
  for (uint i = gl_LocalInvocationIndex; i < kTile + kResults; i += kThreads) {
    const bool is_sum = i < kTile;
    const uint row = is_sum ? uint(max(shared_row[min(i, kTile - 1)], 0)) * (kGlu + 1) + half_glu
                            : min(first_result + i - kTile, p.n - 1);
    const uvec2 terms =
        is_sum ? AdvanceBy(p.experts, row, adapter.terms * 4) : AdvanceBy(b, row, adapter.stride);
    // Results are multiplied by the factors of rows of x later.
    const float also = is_sum ? Inverse(F32(p.factor).v[row / (kGlu + 1)]) : 1.0;
    StageTerms(i, TermsFrom(terms, first_term, is_sum ? adapter.terms : adapter.stride / 4), also);
  }
}

void AddStaged(uint half_glu, uint first_row, uint first_column) {
  [[unroll]] for (uint m = 0; m < kRowMatrices; ++m) {
    const uint row = first_row + m * kMatrix;
    Factors high, low;
    coopMatLoadNV(high, shared_tile, row * kAdapterPitch, kAdapterPitch, false);
    coopMatLoadNV(low, shared_tile, row * kAdapterPitch + 2, kAdapterPitch, false);
    Sums row_units;
    coopMatLoadNV(row_units, shared_tile, kUnits + row * kFactorPitch, kFactorPitch, false);
    [[unroll]] for (uint n = 0; n < kColumnMatrices; ++n) {
      if (kGlu != 0 && (n & 1) != half_glu) continue;
      const uint column = kTile + ColumnOf(first_column, n) - half_glu * kResults;
      Factors b_high, b_low;
      coopMatLoadNV(b_high, shared_tile, column * kAdapterPitch, kAdapterPitch, true);
      coopMatLoadNV(b_low, shared_tile, column * kAdapterPitch + 2, kAdapterPitch, true);
      Sums units, added = Sums(0.0);
      coopMatLoadNV(units, shared_tile, kUnits + column * kFactorPitch, kFactorPitch, true);
      added = coopMatMulAddNV(low, b_high, added);
      added = coopMatMulAddNV(high, b_low, added);
      added = coopMatMulAddNV(high, b_high, added);
      const uint i = n * kRowMatrices + m;
      [[unroll]] for (uint j = 0; j < added.length(); ++j) {
        sums[i][j] += added[j] * row_units[j] * units[j];
      }
    }
  }
}

void AddLowRank(uint first_result, uint first_row, uint first_column) {
  const LowRank adapter = LowRankAt(p.extra).v;
  for (uint half_glu = 0; half_glu <= kGlu; ++half_glu) {
    for (uint term = 0; term < adapter.terms; term += kAdapterTerms) {
      barrier();
      StageLowRank(adapter, half_glu, term, first_result);
      barrier();
      AddStaged(half_glu, first_row, first_column);
    }
  }
}
