// Push constants and the choice of weights of the matrix products of matvec.comp, matmul.comp and
// matmul_coop.comp: y = x W^T, gelu(x G^T) * (x U^T), and both for the experts of a mixture.

const uint kDense = 0;
const uint kShared = 1;  // grouped: the pairs of a row share x
const uint kPairs = 2;   // grouped: each pair of row and expert has an x of its own
const uint kWeighted = 3;  // as kPairs, and the pairs of a row are added up with weights

PUSH Push {
  uvec2 step, x, weight, weight2;
  uvec2 experts;  // i32[rows, used]
  uvec2 extra;    // kWeighted: f32[rows, used]; of tiles: the tables of moe_sort.comp; else of a
                  // gate whose up is given: f32[rows, n]
  uvec2 factor;   // kWeighted: f32[experts], or null; of matmul_coop.comp: f32[rows] of to_half.comp
  uvec2 y;
  Extent rows;    // of x, pairs not counted
  uint n;         // results
  uint k;         // terms of a sum
  uint stride;    // bytes of a row of weights
  uint blocks;    // of a row
  uint used;      // experts of a row
  uint count;     // experts there are
  uint expert_rows;  // rows of weights of one expert
  uint op;        // 1 + its index, for failures
  uvec2 prologue;  // of matvec.comp: PrologueRecord, or not there
} AS_P;
