// The choice of weights of the matrix products of matvec.comp, matmul.comp and
// matmul_coop.comp: y = x W^T, gelu(x G^T) * (x U^T), and both for the experts of a mixture.
