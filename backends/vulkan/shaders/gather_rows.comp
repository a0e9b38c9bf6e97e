#version 460
// Rows of a table by id: of weights, decoded; of anything else, as they are.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "gather_rows.args.glsl"
#include "weights.glsl"

void main() {
  const uint count = At(p.rows, Step(p.step));
  for (uint row = GROUP.x; row < count; row += GROUPS.x) {
    const int id = I32(p.ids).v[row];
    if (id < 0 || id >= int(p.table_rows)) {
      Step(p.step).failed_op = p.op;
      continue;
    }
    const uint place = uint(id) - p.first;
    if (place >= p.rows_there) continue;  // another piece has it
    const uvec2 base = AdvanceBy(p.table, place, p.stride);
    const uint out_base = row * p.columns;
    if (kRaw == 4) {
      for (uint i = gl_LocalInvocationID.x; i < p.columns; i += gl_WorkGroupSize.x) {
        U32(p.y).v[out_base + i] = U32(base).v[p.column + i];
      }
    } else if (kRaw == 2) {
      for (uint i = gl_LocalInvocationID.x; i < p.columns; i += gl_WorkGroupSize.x) {
        U16(p.y).v[out_base + i] = U16(base).v[p.column + i];
      }
    } else {
      const WeightRow weights = WeightRow(base, p.blocks);
      // Whole chunks that touch the columns; their ends are cut off.
      const uint first = kBlock == 256 ? p.column / 256 * 8 : p.column / 32;
      const uint end =
          kBlock == 256 ? (p.column + p.columns) / 256 * 8 : (p.column + p.columns + 31) / 32;
      for (uint chunk = first + gl_LocalInvocationID.x; chunk < end; chunk += gl_WorkGroupSize.x) {
        const Chunk c = Decode(weights, chunk);
        const uvec2 runs = ChunkAt(chunk);
        [[unroll]] for (uint i = 0; i < 32; ++i) {
          const uint at = runs[i >> 4] + (i & 15u);
          if (at >= p.column && at < p.column + p.columns) {
            F32(p.y).v[out_base + at - p.column] = ValueAt(c, i);
          }
        }
      }
    }
  }
}
