// Products of few rows with a matrix of weights: on a CPU, and on devices of many work-items.
#include "common.cl"
#define HAS_PROLOGUE kStaged
#include "matvec.args"
#include "math.kernel"
#include "product.kernel"

#define kHalves (kGlu == 1 ? 2 : 1)

#ifdef CPU
#include "matvec_cpu.cl"
#else
#include "matvec.kernel"
#endif
