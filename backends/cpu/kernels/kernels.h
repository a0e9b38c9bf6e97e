// Numeric kernels of the CPU backend: pure functions over raw pointers, one table of function
// pointers per instruction-set level, chosen at run time.
//
// Ownership: nothing is allocated or kept; the caller owns inputs, outputs and scratch.
// Thread safety: every kernel is a pure function; calls on disjoint outputs and distinct scratch
// may run at the same time. No kernel starts threads: callers split row ranges over their own pool.
// Alignment: that of the element type; 64 bytes for activations is fastest. Kernels never read
// outside the ranges they are given. Inputs and outputs must not overlap unless stated.
// Determinism: with one table, the same inputs give the same bytes. The value of a row never
// depends on the row range it was computed in. See MatMulArgs for what columns promise. Errors:
// preconditions are the caller's (shapes were verified before); nothing is reported here.
#pragma once

#include <rullama/sdk/dtype.h>

#include <cstddef>
#include <cstdint>

namespace rullama::cpu {

// Instruction-set levels, in rising order.
enum class Isa : uint8_t {
  kPortable,    // plain C++, whatever the compiler's baseline is
  kAvx2,        // AVX2, FMA, F16C
  kAvxVnni,     // and AVX-VNNI
  kAvx512,      // AVX-512 F/BW/DQ/VL
  kAvx512Vnni,  // and VNNI
  kAmx,         // and AMX for bf16
};
inline constexpr size_t kIsaCount = 6;

// --- Activations for products with block types ---------------------------------------------------
// Kernels read rows of activations in one of these forms.
enum class ActivationForm : uint8_t {
  kCodes,    // integers with scales
  kBfloats,  // bf16 numbers
};

// kCodes: a float row of K values becomes, for P = K rounded up to 256 (the tail is zero), with two
// planes:
//   int8_t high[P], low[P]  x / scale is about 256 * high + low; all in [-127, 127]
//   float  scale[P / 32]    largest magnitude of the 32 values / (127 * 257)
//   float  sum32[P / 32]    scale * (sum of the 32 codes)
//   int32_t codes32[P / 32], codes16[P / 16]    sums of 32 and of 16 codes
// With one plane the code is `high` alone, rounded to nearest even, and the scale 257 times as
// large. Of 257 codes of 16 bits one is off by a unit: a low byte of 128 is kept as 127. A block
// with a NaN or an infinity gets a NaN scale, so that the damage shows in the product.
inline constexpr size_t kActivationBlock = 32;
inline constexpr size_t kChunk = 256;  // elements of a K-quant block; rows are padded to it

// Scratch sizes include room to align it to a cache line.
inline constexpr size_t kScratchAlignment = 64;

static inline constexpr size_t PaddedLength(size_t k) { return (k + kChunk - 1) / kChunk * kChunk; }

// kBfloats: uint16_t high[P], low[P], each a bf16 number; x is their sum, to 2^-16 of it. With one
// plane `high` alone. What is not finite becomes NaN.
//
// Bytes of one row; a multiple of 64.
static inline constexpr size_t ActivationRowBytes(ActivationForm form, size_t k, int planes) {
  const size_t padded = PaddedLength(k);
  const size_t bytes = padded * static_cast<size_t>(planes);
  if (form == ActivationForm::kBfloats) return 2 * bytes;
  return (bytes + padded / 2 + padded / 8 + 63) / 64 * 64;
}

// --- Matrix product ------------------------------------------------------------------------------
// y[m * y_stride + n] = sum over k of W[n][k] * x[m][k], for n in [n_begin, n_end), m in [0,
// columns).
//
// Block types: products of codes are exact in int32, scaled and summed over k in float32; products
// of bf16 numbers leave out that of both low parts and are summed in float32. F16, BF16, F32:
// float32 products and sums (fused where the level has FMA), or bf16 numbers in split_gemm.
//
// Determinism: each kernel gives a column the same bytes whatever the other columns, their number
// and the row range are. Orders of summation differ in the last bits from kernel to kernel, but
// gemv and gemm of F16, BF16 and F32 are the same function.
struct MatMulArgs {
  const void* weights = nullptr;  // row 0 of W, GGUF bytes in place or packed
  bool packed = false;            // n_begin and n_end are multiples of kPanelRows then
  size_t row_bytes = 0;           // distance between rows of W
  size_t k = 0;                   // elements per row, a multiple of the type's block length
  size_t n_begin = 0, n_end = 0;  // rows of W to compute
  const void* x = nullptr;        // columns: rows of activations for block types, else float rows
  size_t x_stride = 0;            // bytes between columns
  size_t columns = 0;
  ActivationForm form = ActivationForm::kCodes;
  int planes = 1;           // bytes of an activation's code, or bf16 numbers of it: 1 or 2
  float* y = nullptr;       // element (m = 0, n = 0)
  size_t y_stride = 0;      // floats between columns
  void* scratch = nullptr;  // MatMulScratchBytes(), private to this call
};

struct WeightKernels {
  // For few columns, of codes: every weight byte is read once per 4 columns. Needs no scratch for
  // block types.
  void (*gemv)(const MatMulArgs&) = nullptr;
  // For many columns, of codes: unpacks a block of rows once, then runs a register-tiled product.
  void (*gemm)(const MatMulArgs&) = nullptr;
  // out[0..k) = the values of one row, bit for bit the plain float32 formula.
  void (*dequantize)(const void* row, size_t k, float* out) = nullptr;
  // For few columns, with packed rows. Null, as are the next two, for types that are never packed.
  void (*packed_gemv)(const MatMulArgs&) = nullptr;
  // Rearranges kPackedRows rows, `row_bytes` apart, into as many bytes.
  void (*pack)(const void* rows, size_t row_bytes, size_t k, void* out) = nullptr;
  // dequantize() for elements [first, first + count), whole blocks, of row `row` of packed ones.
  void (*dequantize_packed)(const void* rows, size_t row, size_t k, size_t first, size_t count,
                            float* out) = nullptr;
  // For very many columns, of bf16 numbers (floats for F16 and BF16): splits a block of rows into
  // bf16 numbers as well. Null on most levels.
  void (*split_gemm)(const MatMulArgs&) = nullptr;
};
inline constexpr size_t kWeightTypes = 64;  // GGUF type ids are below this

// Rows that are rearranged together for products, see packed_rows.h.
inline constexpr size_t kPackedRows = 16;
// From this many columns on, packed rows are unpacked as others are. Before it pays, that is, by
// type, from 10 (Intel, Q6_K) to over 64 (AMD, Q4_K); the difference around here is some 5 %.
inline constexpr size_t kPackedGemmColumns = 16;
// Rows by which callers split a product.
inline constexpr size_t kPanelRows = 32;
// Rows that are unpacked together: their panels, of some 100 KiB, stay in L2.
inline constexpr size_t kBlockRows = 128;
// Elements of k of a panel of codes: a tile of columns of that depth stays in L1.
inline constexpr size_t kPanelDepth = 512;
// Rows of F16 or BF16 weights converted at a time: a fraction of L2.
inline constexpr size_t kFloatPanelRows = 16;
// Columns whose sums are kept between two depths: 256 KiB with a block of rows, a fraction of L2.
inline constexpr size_t kColumnBlock = 512;
// How far ahead of use weight bytes are asked for: about 100 ns of one thread's share of bandwidth.
inline constexpr size_t kPrefetchBytes = 2048;

// --- Attention -----------------------------------------------------------------------------------
// A run of cached or fresh keys and values of ONE key/value head; row i has position
// first_position + i. A ring that wraps is two segments.
struct KvSegment {
  const void* keys = nullptr;               // row 0: head_dim elements of `dtype`
  const void* values = nullptr;             // row 0
  size_t key_stride = 0, value_stride = 0;  // bytes between rows
  size_t count = 0;
  int64_t first_position = 0;
  DType dtype = DType::kF16;  // kF16 or kF32
};

// One query row: it sees keys with first_visible <= position <= last_visible.
struct AttentionQuery {
  const float* q = nullptr;  // head_dim values
  float* out = nullptr;      // head_dim values, must not overlap any input
  int64_t first_visible = 0;
  int64_t last_visible = 0;
};

// out = sum_t softmax_t(scale * q . k_t) v_t over the visible keys; zero when none is visible.
// Keys and values are read and converted once for all the queries of the call, so pass all query
// heads that share the head (and, in prefill, several positions). Float32 throughout, online
// softmax over tiles of kAttentionTile keys; a result depends on how segments cut the keys into
// tiles (last bits), never on the other queries of the call.
struct AttentionArgs {
  const KvSegment* segments = nullptr;
  size_t segment_count = 0;
  const AttentionQuery* queries = nullptr;
  size_t query_count = 0;
  size_t head_dim = 0;  // a multiple of 8
  float scale = 1.0f;
  // When set, `out` is left unnormalised and these get, per query, the running maximum and the sum
  // of exponentials: parts of the keys computed by different threads are joined by attention_merge.
  float* partial_max = nullptr;
  float* partial_sum = nullptr;
  void* scratch = nullptr;  // AttentionScratchBytes(head_dim, query_count), private to this call
};
inline constexpr size_t kAttentionTile = 32;

// A tile of keys or values, the queries and their accumulators in float32 (rows padded to 16), the
// scores of a tile, and three numbers per query.
static inline constexpr size_t AttentionScratchBytes(size_t head_dim, size_t query_count) {
  const size_t padded = (head_dim + 15) / 16 * 16;
  return (kAttentionTile * padded + query_count * (2 * padded + kAttentionTile + 4)) *
             sizeof(float) +
         kScratchAlignment;
}

// --- The table -----------------------------------------------------------------------------------
struct KernelTable {
  Isa isa = Isa::kPortable;

  // Indexed by the number of the DType; all null for a type that cannot be a weight. Use
  // FindWeight().
  WeightKernels weights[kWeightTypes] = {};

  // From this many columns on, unpacking weights pays.
  size_t gemm_min_columns = 5;
  size_t gemm_scratch_bytes = 0;  // for block types
  // From this many columns on, splitting weights pays; where nothing splits them, never.
  size_t split_min_columns = SIZE_MAX;
  size_t split_scratch_bytes = 0;

  // One row of activations in either form, see there; `out` takes ActivationRowBytes(), 64-byte
  // aligned. split_row is null where nothing splits.
  void (*quantize_row)(const float* x, size_t k, int planes, void* out) = nullptr;
  void (*split_row)(const float* x, size_t k, int planes, void* out) = nullptr;

  // Row conversions; round to nearest even.
  void (*f32_to_f16)(const float* x, size_t n, uint16_t* out) = nullptr;
  void (*f16_to_f32)(const uint16_t* x, size_t n, float* out) = nullptr;

  // Pointwise float32; out may be an input.
  void (*add)(const float* a, const float* b, size_t n, float* out) = nullptr;
  void (*mul)(const float* a, const float* b, size_t n, float* out) = nullptr;
  void (*affine)(const float* x, size_t n, float scale, float offset, float* out) = nullptr;
  void (*axpy)(float a, const float* x, size_t n, float* y) = nullptr;  // y += a * x
  // y[j] += sum over i < count of factors[i] * rows[i * stride + j], j < n, i ascending.
  void (*add_weighted_rows)(const float* factors, const float* rows, size_t stride, size_t count,
                            size_t n, float* y) = nullptr;
  void (*gelu_tanh)(const float* x, size_t n, float* out) = nullptr;
  void (*geglu)(const float* gate, const float* up, size_t n, float* out) = nullptr;
  void (*softcap)(const float* x, size_t n, float cap,
                  float* out) = nullptr;  // cap * tanh(x / cap)
  void (*exp)(const float* x, size_t n, float* out) = nullptr;

  // out = x / sqrt(mean(x^2) + eps) * weight; weight null means ones. Squares and their sum in
  // float64, mean and eps in float32. out may be x.
  void (*rms_norm)(const float* x, const float* weight, size_t n, float eps, float* out) = nullptr;
  // out = residual + rms_norm(x); out may be x or residual.
  void (*rms_norm_add)(const float* x, const float* weight, const float* residual, size_t n,
                       float eps, float* out) = nullptr;
  // Subtracts the maximum; the sum is float64. out may be x. A row of -inf gives zeros.
  void (*softmax)(const float* x, size_t n, float* out) = nullptr;
  // NeoX pairs (i, i + half): out[i] = x[i] cos[i] - x[i+half] sin[i],
  // out[i+half] = x[i] sin[i] + x[i+half] cos[i]. out may be x.
  void (*rope_neox)(const float* x, const float* cos, const float* sin, size_t half,
                    float* out) = nullptr;

  float (*dot)(const float* a, const float* b, size_t n) = nullptr;
  float (*max)(const float* x, size_t n) = nullptr;   // -inf for n = 0; NaN never wins
  double (*sum)(const float* x, size_t n) = nullptr;  // float64
  // Index of the largest value, the lowest one among equals; NaN never wins; 0 for n = 0.
  size_t (*argmax)(const float* x, size_t n) = nullptr;

  void (*attention)(const AttentionArgs&) = nullptr;
};

// The levels this processor (and this build) can run. kPortable always can.
[[nodiscard]] bool IsaAvailable(Isa isa);
[[nodiscard]] Isa BestIsa();
[[nodiscard]] const char* IsaName(Isa isa);
// The table of a level; of the portable level when `isa` is not available.
[[nodiscard]] const KernelTable& KernelsFor(Isa isa);

// Null when `dtype` cannot be a weight of a matrix product.
[[nodiscard]] const WeightKernels* FindWeight(const KernelTable& table, DType dtype);
// Whether products with this weight type take rows of activations (else float rows).
[[nodiscard]] bool UsesActivationRows(DType dtype);
// The form for products with this many columns.
[[nodiscard]] ActivationForm FormFor(const KernelTable& table, size_t columns);
// quantize_row or split_row.
void MakeActivationRow(const KernelTable& table, ActivationForm form, const float* x, size_t k,
                       int planes, void* out);
// Scratch for one gemm or gemv call of up to this many columns, for any number of rows.
[[nodiscard]] size_t MatMulScratchBytes(const KernelTable& table, DType dtype, size_t k,
                                        size_t columns);
// The kernel for the form and the number of columns. `dtype` must have kernels.
void MatMul(const KernelTable& table, DType dtype, const MatMulArgs& args);

// Joins `parts` partial attention results of one query: out = sum_p exp(max_p - max) acc_p / total.
// acc: parts rows of head_dim, `acc_stride` floats apart; max, sum: one per part. out may be acc.
void AttentionMerge(const float* acc, size_t acc_stride, const float* max, const float* sum,
                    size_t parts, size_t head_dim, float* out);

}  // namespace rullama::cpu
