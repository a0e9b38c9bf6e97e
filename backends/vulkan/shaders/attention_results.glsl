// The queries and results of a workgroup of attention on matrix units. A subgroup has its dims of
// all queries in `result`, by 16 dims and then by 16 queries, and kHelpers invocations share the
// softmax of a query. The includer has the numbers of both, and shared_rows for results on their
// way to memory.

const uint kRows = kQueries / kGroup;
shared int shared_pos[kRows];
shared int shared_last[kRows];  // the last visible position
shared int shared_slot[kRows];  // -1: no such row
#include "visible_rows.kernel"

const uint kDimMatrices = kDim / kSubgroups / kMatrix;  // of a subgroup's share of the results
const uint kFactorPitch = kMatrix / 4;
shared uvec4 shared_factor[kQueries * kFactorPitch];  // a factor of each query, as a row of 16
shared float shared_scale[kQueries];                  // of its scores
shared int shared_first, shared_end;                  // of the fresh keys that some query sees

Sums result[kDimMatrices * kQueryBlocks];
// Maximum and sum of the query that this invocation helps. In attention_half_coop the maximum is in
// units of ln 2.
float running_max, running_sum;

uint me;
uint first_row, first_head, kv_head;

// The largest weight of a key. It is this large because fewer of the small ones are then subnormals
// of f16.
const float kLargestWeight = 4096.0;

// A factor of the query this invocation helps, for ScaleResults.
void StoreFactor(float factor) {
  const uint query = me / kHelpers, helper = me % kHelpers;
  if (helper >= kFactorPitch) return;
  shared_factor[query * kFactorPitch + helper] = uvec4(floatBitsToUint(factor));
}

float HelpersMax(float x) {
  for (uint mask = kHelpers / 2; mask > 0; mask /= 2) x = max(x, subgroupShuffleXor(x, mask));
  return x;
}
float HelpersSum(float x) {
  for (uint mask = kHelpers / 2; mask > 0; mask /= 2) x += subgroupShuffleXor(x, mask);
  return x;
}

void ScaleResults() {
  [[unroll]] for (uint m = 0; m < kQueryBlocks; ++m) {
    Sums factor;
    coopMatLoadNV(factor, shared_factor, m * kMatrix * kFactorPitch, kFactorPitch, false);
    [[unroll]] for (uint n = 0; n < kDimMatrices; ++n) {
      [[unroll]] for (uint i = 0; i < factor.length(); ++i) {
        result[n * kQueryBlocks + m][i] *= factor[i];
      }
    }
  }
}

// 16 x 16 results at a time through shared memory of the subgroup's own, times the factor of the
// query this invocation helps.
void StoreResults(uint rows, float factor) {
  barrier();
  StoreFactor(factor);
  barrier();
  ScaleResults();
  const uint own = gl_SubgroupID * kMatrix * kFactorPitch;
  [[unroll]] for (uint n = 0; n < kDimMatrices; ++n) {
    const uint dim = (gl_SubgroupID * kDimMatrices + n) * kMatrix;
    [[unroll]] for (uint m = 0; m < kQueryBlocks; ++m) {
      subgroupBarrier();
      coopMatStoreNV(result[n * kQueryBlocks + m], shared_rows, own, kFactorPitch, false);
      subgroupBarrier();
      for (uint i = gl_SubgroupInvocationID; i < kMatrix * kMatrix; i += kLanes) {
        const uint query = m * kMatrix + i / kMatrix, row = first_row + query / kGroup;
        if (row >= rows) continue;
        const uvec2 to = AdvanceBy(p.y, row * kHeads + first_head + query % kGroup, kDim * 4);
        F32(to).v[dim + i % kMatrix] = uintBitsToFloat(shared_rows[own + i / 4][i & 3]);
      }
    }
  }
}
