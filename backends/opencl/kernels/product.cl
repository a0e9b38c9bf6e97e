// Push constants and the choice of weights of the matrix products of matvec.cl and matmul.cl: y = x W^T,
// gelu(x G^T) * (x U^T), and both for the experts of a mixture.

#define kDense 0
#define kShared 1    // grouped: the pairs of a row share x
#define kPairs 2     // grouped: each pair of row and expert has an x of its own
#define kWeighted 3  // as kPairs, and the pairs of a row are added up with weights

#define kGlu C5   // 1: gate and up; 2: gate, and up is given in `extra`
#define kMode C6

// What a product of one row does to it first (prologue.cl).
typedef struct {
  Pointer x, residual, weight, scale, sum, norm_weight;
  float eps;
  float norm_eps;  // below 0: no norm
} Prologue;

typedef struct {
  Pointer step, x, weight, weight2;
  Pointer experts;  // i32[rows, used]
  Pointer extra;    // kWeighted: f32[rows, used]; of tiles: the tables of moe_sort.cl; else of a
                    // gate whose up is given: f32[rows, n]
  Pointer factor;   // kWeighted: f32[experts], or null
  Pointer y;
  Extent rows;      // of x, pairs not counted
  uint n;           // results
  uint k;           // terms of a sum
  uint stride;      // bytes of a row of weights
  uint blocks;      // of a row
  uint used;        // experts of a row
  uint count;       // experts there are
  uint expert_rows;  // rows of weights of one expert
  uint op;          // 1 + its index, for failures
#ifdef PROLOGUE
  uint reserved;
  Prologue prologue;
#endif
} Push;

#define PRODUCT_BUFFERS                                                                \
  BUFFER(step) BUFFER(x) const BUFFER(weight) const BUFFER(weight2) BUFFER(experts) \
      BUFFER(extra) BUFFER(factor) BUFFER(y)

// Row `row` of one of the two matrices.
#define WEIGHT_ROW(name, row)                                             \
  ((WeightRow){AT(const uchar, name) + (size_t)(row) * push.stride, push.blocks})
