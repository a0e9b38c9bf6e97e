// Products with weights as they are stored (stored_product.h) by VNNI's dot products of 16-bit
// words. One instruction multiplies twice as many words as float32 numbers. Internal linkage
// throughout, see simd_portable.h.
#pragma once

#include "backends/cpu/kernels/scratch.h"
#include "backends/cpu/kernels/simd.h"
#include "backends/cpu/kernels/stored_product.h"

namespace rullama::cpu {
namespace {

// Words are scaled to these Euclidean norms of a step, of a row of x and of a column of W, unless a
// word of W would be larger than kMaxWord. Rounding adds at most sqrt(32) / 2 to a norm, so that
// the sum of a step's products is below 2^31 (Cauchy-Schwarz). Scaled by the largest number of a
// step, words would have to be smaller.
constexpr float kRowNorm = 32764.0f;
constexpr float kColumnNorm = 65530.0f;
constexpr float kMaxWord = 32766.0f;
static_assert(kStoredStep == 32);

constexpr size_t kWordDepth = kStoredStep * kMaxStoredSteps;

struct WordScratch {
  // Batch rows that are converted at a time: with the panels, a fifth of L2.
  static constexpr size_t kBatch = 126;
  static_assert(kBatch % kWordBatch == 0);

  // Pairs of rows of sixteen columns of W.
  struct Panel {
    int16_t pairs[kWordDepth / 2][16][2];
  };
  // A cache line beyond a power of two, so that the rows of a tile do not share cache sets.
  struct Row {
    int16_t words[kWordDepth];
    float scale[kMaxStoredSteps], unused[8];
  };

  alignas(64) Panel panels[kStoredSpan / 16];
  alignas(64) float scale[kMaxStoredSteps][kStoredSpan];  // of the columns of W
  alignas(64) Row x[kBatch];
};

// Where the sum of squares is outside of these, it has overflowed or lost bits. The norm is then
// taken to be that of numbers that are all as large as the largest.
constexpr float kMinSquares = 1e-30f;
constexpr float kMaxSquares = 1e38f;
constexpr float kRootOfStep = 5.656854f;
// Below this the reciprocal of a scale overflows. A step of such numbers is stored as zeros.
constexpr float kTinyNumber = 1e-30f;

// Sixteen columns of a step of W.
void PackColumns(const float* rows, WordScratch::Panel& panel, size_t step, float* scales) {
  const F32x16 zero = Zero();
  F32x16 squares = zero, largest = zero, nan_or_zero = zero;
  for (size_t k = 0; k < kStoredStep; ++k) {
    const F32x16 row = Load(rows + k * kStoredSpan);
    squares = Fma(row, row, squares);
    largest = Max(largest, Abs(row));
    nan_or_zero = Fma(row, zero, nan_or_zero);
  }
  const F32x16 by_largest = Mul(largest, Set1(kRootOfStep / kColumnNorm));
  const F32x16 by_norm =
      SelectLess(squares, Set1(kMinSquares), by_largest,
                 SelectLess(squares, Set1(kMaxSquares),
                            Mul(Sqrt(squares), Set1(1.0f / kColumnNorm)), by_largest));
  const F32x16 scale = Max(by_norm, Mul(largest, Set1(1.0f / kMaxWord)));
  const F32x16 tiny = Set1(kTinyNumber);
  const F32x16 inverse = SelectLess(largest, tiny, zero, Div(Set1(1.0f), scale));
  Store(scales, Add(SelectLess(largest, tiny, zero, scale), nan_or_zero));
  for (size_t k = 0; k < kStoredStep; k += 2) {
    const float* pair = rows + k * kStoredSpan;
    const I32x16 even = RoundToInt(Mul(Load(pair), inverse));
    const I32x16 odd = RoundToInt(Mul(Load(pair + kStoredSpan), inverse));
    auto* out = panel.pairs[(step * kStoredStep + k) / 2];
    StoreBytes(reinterpret_cast<uint8_t*>(out), PairWords(even, odd));
  }
}

void PackSpan(const StoredProductArgs& args, WordScratch& scratch) {
  for (size_t step = 0; step < args.steps; ++step) {
    for (size_t n = 0; n < args.columns; n += 16) {
      PackColumns(args.rows + step * kStoredStep * kStoredSpan + n, scratch.panels[n / 16], step,
                  scratch.scale[step] + n);
    }
  }
}

// The scale of 32 numbers whose squares overflow or vanish; NaN if one is not finite.
float ScaleByLargest(const F32x16& x0, const F32x16& x1) {
  const float nan_or_zero = ReduceAdd(Fma(x0, Zero(), Mul(x1, Zero())));
  const float largest = ReduceMax(Max(Abs(x0), Abs(x1)));
  return (largest > kTinyNumber ? largest * (kRootOfStep / kRowNorm) : 0.0f) + nan_or_zero;
}

// The 32 elements of a row of x that meet a step, of which `left` exist.
void ConvertStep(const float* x, size_t left, int16_t* words, float& scale) {
  const F32x16 x0 = left < 16 ? LoadPartial(x, left) : Load(x);
  const F32x16 x1 = left < 16 ? Zero() : left < 32 ? LoadPartial(x + 16, left - 16) : Load(x + 16);
  const float squares = ReduceAdd(Fma(x0, x0, Mul(x1, x1)));
  const bool usual = squares > kMinSquares && squares < kMaxSquares;
  scale = usual ? __builtin_sqrtf(squares) * (1.0f / kRowNorm) : ScaleByLargest(x0, x1);
  const F32x16 inverse = Set1(scale > 0 ? 1.0f / scale : 0.0f);
  StoreWords(words, RoundToInt(Mul(x0, inverse)));
  StoreWords(words + 16, RoundToInt(Mul(x1, inverse)));
}

void ConvertRow(const StoredProductArgs& args, const float* x, WordScratch::Row& row) {
  for (size_t step = 0; step < args.steps; ++step) {
    const size_t k = args.begins[step];
    ConvertStep(x + k, args.k - k, row.words + step * kStoredStep, row.scale[step]);
  }
}

// Adds the products of kWordBatch rows of x with kPanels panels to the first `batch` rows of y, or
// stores them there. Rows of x after `batch` may hold anything.
template <int kPanels>
void AddWordTile(const StoredProductArgs& args, const WordScratch& scratch, size_t n,
                 const WordScratch::Row* x, size_t batch, float* y) {
  const WordScratch::Panel* panels = scratch.panels + n / 16;
  F32x16 sums[kWordBatch][kPanels];
  for (size_t m = 0; m < kWordBatch; ++m) {
    for (size_t p = 0; p < kPanels; ++p) {
      sums[m][p] = args.add && m < batch ? Load(y + m * args.y_stride + p * 16) : Zero();
    }
  }
  for (size_t step = 0; step < args.steps; ++step) {
    I32x16 dots[kWordBatch][kPanels];
    for (auto& row : dots) {
      for (I32x16& dot : row) dot = ZeroInt();
    }
#pragma GCC unroll 4
    for (size_t k = step * kStoredStep; k < (step + 1) * kStoredStep; k += 2) {
      U8x64 pairs[kPanels];
      for (size_t p = 0; p < kPanels; ++p) {
        pairs[p] = LoadBytes(reinterpret_cast<const uint8_t*>(panels[p].pairs[k / 2]));
      }
#pragma GCC unroll 8
      for (size_t m = 0; m < kWordBatch; ++m) {
        for (size_t p = 0; p < kPanels; ++p) {
          dots[m][p] = DotWords(dots[m][p], pairs[p], x[m].words + k);
        }
      }
    }
    for (size_t p = 0; p < kPanels; ++p) {
      const F32x16 scale = Load(scratch.scale[step] + n + p * 16);
#pragma GCC unroll 8
      for (size_t m = 0; m < kWordBatch; ++m) {
        sums[m][p] = Fma(Mul(ToFloat(dots[m][p]), scale), Set1(x[m].scale[step]), sums[m][p]);
      }
    }
  }
  for (size_t m = 0; m < batch; ++m) {
    for (size_t p = 0; p < kPanels; ++p) Store(y + m * args.y_stride + p * 16, sums[m][p]);
  }
}

void AddStoredWords(const StoredProductArgs& args) {
  auto& scratch = *reinterpret_cast<WordScratch*>(AlignUp(args.scratch));
  PackSpan(args, scratch);
  for (size_t first = 0; first < args.batch; first += WordScratch::kBatch) {
    const size_t left = args.batch - first;
    const size_t count = left < WordScratch::kBatch ? left : WordScratch::kBatch;
    for (size_t m = 0; m < count; ++m) {
      ConvertRow(args, args.x + (first + m) * args.k, scratch.x[m]);
    }
    for (size_t n = 0; n < args.columns;) {
      const bool whole = args.columns - n >= kWordPanels * 16;
      for (size_t m = 0; m < count; m += kWordBatch) {
        const size_t rest = count - m;
        const size_t batch = rest < kWordBatch ? rest : kWordBatch;
        float* y = args.y + (first + m) * args.y_stride + n;
        whole ? AddWordTile<kWordPanels>(args, scratch, n, scratch.x + m, batch, y)
              : AddWordTile<1>(args, scratch, n, scratch.x + m, batch, y);
      }
      n += whole ? kWordPanels * 16 : 16;
    }
  }
}

}  // namespace
}  // namespace rullama::cpu
