// y[t] = sum over the experts j of a row of weight[t, j] * factor[expert] * x[t, j].
#include "common.cl"
#include "moe_combine.args"

KERNEL moe_combine(ARGUMENTS) {
  FOR_EACH(i, ROWS_OF(rows) * push.n) {
    const uint row = i / push.n, column = i % push.n;
    float sum = 0.0f;
    for (uint j = 0; j < push.used; ++j) {
      const uint pair = row * push.used + j;
      const int expert = AT(int, experts)[pair];
      if (expert < 0 || expert >= (int)push.count) continue;
      float weight = AT(float, weights)[pair];
      if (!IS_NULL(factor)) weight *= AT(float, factor)[expert];
      sum = fma(weight, AT(float, x)[(size_t)pair * push.n + column], sum);
    }
    AT(float, y)[i] = sum;
  }
}
