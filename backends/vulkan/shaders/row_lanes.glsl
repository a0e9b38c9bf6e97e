// The invocations that share a row: a workgroup, or with kNarrow a subgroup, several of which are
// in a workgroup. All of them call RowSum() and RowMax(), and get the result.
#include "reduce.glsl"

#ifdef SUBGROUPS
const bool kBySubgroup = kNarrow != 0;
uint Lane() { return kBySubgroup ? gl_SubgroupInvocationID : gl_LocalInvocationID.x; }
uint Lanes() { return kBySubgroup ? gl_SubgroupSize : gl_WorkGroupSize.x; }
uint RowsAtOnce() { return kBySubgroup ? gl_NumSubgroups : 1; }
uint FirstRow() { return kBySubgroup ? GROUP.x * gl_NumSubgroups + gl_SubgroupID : GROUP.x; }
float RowSum(float x) { return kBySubgroup ? SumOfLanes(x, gl_SubgroupSize) : WorkgroupSum(x); }
float RowMax(float x) { return kBySubgroup ? MaxOfLanes(x, gl_SubgroupSize) : WorkgroupMax(x); }
#else
uint Lane() { return gl_LocalInvocationID.x; }
uint Lanes() { return gl_WorkGroupSize.x; }
uint RowsAtOnce() { return 1; }
uint FirstRow() { return GROUP.x; }
float RowSum(float x) { return WorkgroupSum(x); }
float RowMax(float x) { return WorkgroupMax(x); }
#endif

// The rows of these invocations, of `count`.
#define FOR_MY_ROWS(row, count) \
  for (uint row = FirstRow(); row < (count); row += GROUPS.x * RowsAtOnce())
// The elements of this invocation, of `count` of a row.
#undef FOR_MINE
#define FOR_MINE(i, count) for (uint i = Lane(); i < (count); i += Lanes())
