// Rows of a table by id: of weights, decoded; of anything else, as they are.
#include "common.cl"
#include "gather_rows.args"
#include "weights.cl"

KERNEL(gather_rows) {
  const uint count = ROWS_OF(rows);
  for (uint row = GROUP; row < count; row += GROUPS) {
    const int id = AT(int, ids)[row];
    if (id < 0 || id >= (int)push.table_rows) {
      FAIL();
      continue;
    }
    const uint place = (uint)id - push.first;
    if (place >= push.rows_there) continue;  // another piece has it
    __global const uchar* base = AT(uchar, table) + (size_t)place * push.stride;
    const size_t out_at = (size_t)row * push.columns;
#if kRaw == 4
    __global const uint* from = (__global const uint*)base + push.column;
    FOR_MINE(i, push.columns) AT(uint, y)[out_at + i] = from[i];
#elif kRaw == 2
    __global const ushort* from = (__global const ushort*)base + push.column;
    FOR_MINE(i, push.columns) AT(ushort, y)[out_at + i] = from[i];
#else
    const WeightRow weights = {base, push.blocks};
    __global float* y = AT(float, y) + out_at;
    // Whole chunks that touch the columns; their ends are cut off.
    const uint end_column = push.column + push.columns;
    const uint begin = kBlock == 256 ? push.column / 256 * 8 : push.column / 32;
    const uint end = kBlock == 256 ? end_column / 256 * 8 : (end_column + 31) / 32;
    for (uint chunk = begin + ME; chunk < end; chunk += THREADS) {
      const Chunk c = Decode(weights, chunk);
      const uint2 runs = ChunkAt(chunk);
      UNROLL for (uint run = 0; run < 2; ++run) {
        const Sixteen values = ValuesOf(&c, run);
        UNROLL for (uint i = 0; i < 16; ++i) {
          const uint at = RUN_AT(runs, run) + i;
          if (at >= push.column && at < end_column) y[at - push.column] = values.one[i];
        }
      }
    }
#endif
  }
}
