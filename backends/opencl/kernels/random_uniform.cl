// Philox4x32-10 of (pos, slot, stream) or (pos, stream of the row): <rullama/sdk/philox.h>.
#include "common.cl"
#include "random_uniform.args"

KERNEL random_uniform(ARGUMENTS) {
  FOR_EACH(row, ROWS_OF(rows)) {
    const bool of_row = IS_NULL(slot);
    __global const uint* seed = AT(uint, seed) + (of_row ? 3 * (size_t)row : 0);
    const uint second = of_row ? seed[2] : AT(uint, slot)[row];
    uint4 counter = (uint4)(AT(uint, pos)[row], second, push.stream, 0);
    uint2 key = (uint2)(seed[0], seed[1]);
    for (int round = 0; round < 10; ++round) {
      const uint high0 = mul_hi(0xD2511F53u, counter.x), low0 = 0xD2511F53u * counter.x;
      const uint high1 = mul_hi(0xCD9E8D57u, counter.z), low1 = 0xCD9E8D57u * counter.z;
      counter = (uint4)(high1 ^ counter.y ^ key.x, low1, high0 ^ counter.w ^ key.y, low0);
      key += (uint2)(0x9E3779B9u, 0xBB67AE85u);
    }
    AT(float, y)[row] = (float)(counter.x >> 8) * 5.9604644775390625e-8f;
  }
}
