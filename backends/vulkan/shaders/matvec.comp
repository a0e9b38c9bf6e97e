#version 460
// Products of few rows with a matrix of weights: `kLanes` invocations share a row of weights and
// add up their parts. Accumulates in f32.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "matvec.args.glsl"
#include "math.kernel"
#include "weights.kernel"
#include "reduce.kernel"
#include "lanes.kernel"

const uint kTurns = (kColumns / 4 + gl_WorkGroupSize.x - 1) / gl_WorkGroupSize.x;
#include "prologue.glsl"

const uint kHalves = kGlu == 1 ? 2 : 1;

float acc[kHalves * kNr * kNt];

// Four values of x from `at` on, 0 beyond its end.
vec4 LoadX(uvec2 x, uint at) {
  if (kStaged != 0) return uintBitsToFloat(shared_x[at / 4]);
  if (kChecked == 0) return F32x4(Advance(x, at * 4)).v[0];
  vec4 v = vec4(0);
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    if (at + i < p.k) v[i] = F32(x).v[at + i];
  }
  return v;
}

// The product of a run of 16 with the values of x at `at`.
float RunDot(Chunk c, uint run, uvec2 x, uint at) {
  float sum = 0.0, plain = 0.0;
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    const vec4 v = LoadX(x, at + i * 4);
    [[unroll]] for (uint j = 0; j < 4; ++j) sum = fma(Code(c, run * 16 + i * 4 + j), v[j], sum);
    if (kHasOffset) plain += v.x + v.y + v.z + v.w;
  }
  return kHasOffset ? fma(c.scale[run], sum, c.offset[run] * plain) : c.scale[run] * sum;
}

Chunk WeightChunk(uint half_glu, uint weight_row, uint chunk) {
  const uvec2 weight = half_glu == 0 ? p.weight : p.weight2;
  return Decode(WeightRow(AdvanceBy(weight, weight_row, p.stride), p.blocks), chunk);
}

// One row of x: its values are read once for all rows of weights, and the weights of several chunks
// are on their way at the same time.
void AccumulateOne(uint lane, uint row, uint first_weight_row, uvec2 x) {
  const uint chunks = kBlock == 1 ? (p.k + 31) / 32 : p.blocks * kBlock / 32;
  for (uint first = lane; first < chunks; first += kLanes * kUnroll) {
    Chunk c[kUnroll * kHalves * kNr];
    [[unroll]] for (uint u = 0; u < kUnroll; ++u) {
      [[unroll]] for (uint i = 0; i < kHalves * kNr; ++i) {
        const uint weight_row = first_weight_row + min(row + i % kNr, p.n - 1);
        c[u * kHalves * kNr + i] =
            WeightChunk(i / kNr, weight_row, min(first + u * kLanes, chunks - 1));
      }
    }
    [[unroll]] for (uint u = 0; u < kUnroll; ++u) {
      const uint chunk = first + u * kLanes;
      const uvec2 at = ChunkAt(min(chunk, chunks - 1));
      [[unroll]] for (uint run = 0; run < 2; ++run) {
        vec4 v[4];
        float plain = 0.0;
        [[unroll]] for (uint i = 0; i < 4; ++i) {
          v[i] = LoadX(x, at[run] + i * 4);
          if (chunk >= chunks) v[i] = vec4(0);
          if (kHasOffset) plain += v[i].x + v[i].y + v[i].z + v[i].w;
        }
        [[unroll]] for (uint i = 0; i < kHalves * kNr; ++i) {
          const uint at_c = u * kHalves * kNr + i;
          float sum = 0.0;
          [[unroll]] for (uint j = 0; j < 16; ++j) {
            sum = fma(Code(c[at_c], run * 16 + j), v[j >> 2][j & 3], sum);
          }
          acc[i] = fma(c[at_c].scale[run], sum, acc[i]);
          if (kHasOffset) acc[i] = fma(c[at_c].offset[run], plain, acc[i]);
        }
      }
    }
  }
}

// Several rows of x: a chunk of weights is decoded once for all of them.
void AccumulateSome(uint lane, uint row, uint first_weight_row, uvec2 x, uint last_x) {
  const uint chunks = kBlock == 1 ? (p.k + 31) / 32 : p.blocks * kBlock / 32;
  for (uint chunk = lane; chunk < chunks; chunk += kLanes) {
    const uvec2 at = ChunkAt(chunk);
    [[unroll]] for (uint i = 0; i < kHalves * kNr; ++i) {
      const uint weight_row = first_weight_row + min(row + i % kNr, p.n - 1);
      const Chunk c = WeightChunk(i / kNr, weight_row, chunk);
      [[unroll]] for (uint t = 0; t < kNt; ++t) {
        const uvec2 x_row = AdvanceBy(x, min(t, last_x), p.k * 4);
        acc[i * kNt + t] += RunDot(c, 0, x_row, at.x) + RunDot(c, 1, x_row, at.y);
      }
    }
  }
}

// Adds the products of rows [row, row + kNr) of the weights with kNt rows of x to `acc`.
void Accumulate(uint lane, uint row, uint first_weight_row, uvec2 x, uint last_x) {
  if (kNt == 1) {
    AccumulateOne(lane, row, first_weight_row, x);
  } else {
    AccumulateSome(lane, row, first_weight_row, x, last_x);
  }
}

float LaneSum(float x) { return SumOfLanes(x, kLanes); }

void Clear() { [[unroll]] for (uint i = 0; i < kHalves * kNr * kNt; ++i) acc[i] = 0.0; }

float Result(uint r, uint t) {
  const float y = LaneSum(acc[r * kNt + t]);
  if (kGlu == 0) return y;
  if (kGlu == 2) return GeluTanh(y);
  return GeluTanh(y) * LaneSum(acc[(kNr + r) * kNt + t]);
}

// Whether the expert of a pair exists; if not, the run fails.
bool Valid(int expert) {
  if (expert >= 0 && expert < int(p.count)) return true;
  Step(p.step).failed_op = p.op;
  return false;
}

void Dense(uint lane, uint row) {
  const uint rows = At(p.rows, Step(p.step));
  for (uint first = GROUP.y * kNt; first < rows; first += GROUPS.y * kNt) {
    Clear();
    Accumulate(lane, row, 0, AdvanceBy(p.x, first, p.k * 4), rows - 1 - first);
    [[unroll]] for (uint r = 0; r < kNr; ++r) {
      [[unroll]] for (uint t = 0; t < kNt; ++t) {
        const float y = Result(r, t);
        if (lane == 0 && row + r < p.n && first + t < rows) {
          const uint to = (first + t) * p.n + row + r;
          F32(p.y).v[to] = kGlu == 2 ? y * F32(p.extra).v[to] : y;
        }
      }
    }
  }
}

void Grouped(uint lane, uint row) {
  const uint pairs = At(p.rows, Step(p.step)) * p.used;
  for (uint pair = GROUP.y; pair < pairs; pair += GROUPS.y) {
    const int expert = I32(p.experts).v[pair];
    Clear();
    const bool valid = Valid(expert);
    if (valid) {
      const uint x_row = kMode == kShared ? pair / p.used : pair;
      Accumulate(lane, row, uint(expert) * p.expert_rows, AdvanceBy(p.x, x_row, p.k * 4), 0);
    }
    [[unroll]] for (uint r = 0; r < kNr; ++r) {
      const float y = Result(r, 0);
      if (valid && lane == 0 && row + r < p.n) F32(p.y).v[pair * p.n + row + r] = y;
    }
  }
}

void Weighted(uint lane, uint row) {
  const uint rows = At(p.rows, Step(p.step));
  float sum[kNr];
  for (uint t = GROUP.y; t < rows; t += GROUPS.y) {
    [[unroll]] for (uint r = 0; r < kNr; ++r) sum[r] = 0.0;
    for (uint j = 0; j < p.used; ++j) {
      const uint pair = t * p.used + j;
      const int expert = I32(p.experts).v[pair];
      if (!Valid(expert)) continue;
      Clear();
      Accumulate(lane, row, uint(expert) * p.expert_rows, AdvanceBy(p.x, pair, p.k * 4), 0);
      float weight = F32(p.extra).v[pair];
      if (!IsNull(p.factor)) weight *= F32(p.factor).v[expert];
      [[unroll]] for (uint r = 0; r < kNr; ++r) sum[r] = fma(weight, acc[r], sum[r]);
    }
    [[unroll]] for (uint r = 0; r < kNr; ++r) {
      const float y = LaneSum(sum[r]);
      if (lane == 0 && row + r < p.n) F32(p.y).v[t * p.n + row + r] = y;
    }
  }
}

void StageRow() {
  LoadNormedRow(GROUP.y);
  [[unroll]] for (uint t = 0; t < kTurns; ++t) {
    if (InRow(t)) shared_x[RowPlace(t)] = floatBitsToUint(x_row[t]);
  }
  barrier();
}

void main() {
  if (kStaged != 0) {
    if (GROUP.y >= At(p.rows, Step(p.step))) return;
    StageRow();
  }
  const uint lane = Index() & (kLanes - 1), group = Index() / kLanes;
  const uint groups = gl_WorkGroupSize.x / kLanes;  // of lanes
  // All workgroups get some of the rows of weights, be they few.
  for (uint first = GROUP.x * kNr; first < p.n; first += GROUPS.x * groups * kNr) {
    const uint row = first + group * GROUPS.x * kNr;
    if (kMode == kDense) {
      Dense(lane, row);
    } else if (kMode == kWeighted) {
      Weighted(lane, row);
    } else {
      Grouped(lane, row);
    }
  }
}
