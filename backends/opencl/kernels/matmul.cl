// Products of many rows with a matrix of weights: on a CPU, and on devices of many work-items.
#include "common.cl"
#include "matmul.args"
#include "math.kernel"
#include "product.kernel"
#include "tile_rows.kernel"

#ifdef CPU
#include "matmul_cpu.cl"
#else
#include "matmul.kernel"
#endif
