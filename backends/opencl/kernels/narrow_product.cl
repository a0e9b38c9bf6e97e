// Products of few rows of weights in f32.
#include "common.cl"
#define HAS_PROLOGUE kStaged
#include "narrow_product.args"
#include "narrow_product.kernel"
