// The rows of weights of matrix products (matmul_cpu.cl, matmul_coop.cl): y = x W^T,
// gelu(x G^T) * (x U^T), and both for the experts of a mixture.

// Row `row` of one of the two matrices.
#define WEIGHT_ROW(name, row) \
  ((WeightRow){AT(const uchar, name) + (size_t)(row)*push.stride, push.blocks})
