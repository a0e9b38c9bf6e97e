// Products with weights as they are stored (stored_product.h) on Intel AMX's matrix unit. Needs no
// transposition: pairs of rows of W are interleaved as the second operand of tdpbf16ps wants them.
// Internal linkage throughout, see simd_portable.h.
#pragma once

#include "backends/cpu/kernels/amx_tile.h"
#include "backends/cpu/kernels/scratch.h"
#include "backends/cpu/kernels/stored_product.h"

namespace rullama::cpu {
namespace {

static_assert(kStoredStep == TileRegisters::kStep);
static_assert(kStoredStep * kMaxStoredSteps == Bf16Panel::kDepth);

struct StoredScratch {
  // Batch rows that are split at a time: 136 KiB, with the panels and the rows of W a third of L2.
  static constexpr size_t kBatch = 128;
  static constexpr size_t kDepth = Bf16Panel::kDepth;
  // A cache line beyond a power of two, so that the rows of a tile do not share cache sets.
  struct Row {
    uint16_t part[2][kDepth], unused[32];
  };

  alignas(64) Bf16Panel panels[kStoredSpan / kLanes];
  alignas(64) Row x[kBatch];
};

void InterleaveRows(const StoredProductArgs& args, Bf16Panel* panels) {
  for (size_t k = 0; k < args.steps * kStoredStep; k += 2) {
    const float* even = args.rows + k * kStoredSpan;
    const float* odd = even + kStoredSpan;
    for (size_t n = 0; n < args.columns; n += kLanes) {
      StorePairs(Load(even + n), Load(odd + n), panels[n / kLanes].part[0] + k * kLanes,
                 Bf16Panel::kPartSize);
    }
  }
}

// The elements of a row of x that meet the steps.
void SplitSteps(const StoredProductArgs& args, const float* x, StoredScratch::Row& row) {
  for (size_t step = 0; step < args.steps; ++step) {
    for (const size_t i : {size_t{0}, size_t{16}}) {
      const size_t k = args.begins[step] + i;
      const size_t left = k < args.k ? args.k - k : 0;
      const size_t at = step * kStoredStep + i;
      StoreSplit<2>(left < 16 ? LoadPartial(x + k, left) : Load(x + k), row.part[0] + at,
                    StoredScratch::kDepth);
    }
  }
}

template <bool kBoth>
void AddSteps(const StoredProductArgs& args, const Bf16Panel* panels, const StoredScratch::Row& x,
              float* y) {
  const size_t stride = args.y_stride * sizeof(float);
  args.add ? LoadSums<kBoth>(y, stride) : ZeroSums();
  for (size_t k = 0; k < args.steps * kStoredStep; k += kStoredStep) {
    AddStep<kBoth, 2, 2>(PairOf(panels), k, {x.part[0], sizeof(x), StoredScratch::kDepth});
  }
  StoreSums<kBoth>(y, stride);
}

void AddStoredProduct(const StoredProductArgs& args) {
  auto& scratch = *reinterpret_cast<StoredScratch*>(AlignUp(args.scratch));
  InterleaveRows(args, scratch.panels);
  TileRegisters registers;
  for (size_t first = 0; first < args.batch; first += StoredScratch::kBatch) {
    const size_t left = args.batch - first;
    const size_t count = left < StoredScratch::kBatch ? left : StoredScratch::kBatch;
    for (size_t m = 0; m < count; ++m) {
      SplitSteps(args, args.x + (first + m) * args.k, scratch.x[m]);
    }
    for (size_t m = 0; m < count; m += TileRegisters::kMaxBatch) {
      const size_t rest = count - m;
      const size_t batch = rest < TileRegisters::kMaxBatch ? rest : TileRegisters::kMaxBatch;
      registers.Configure(batch);
      for (size_t n = 0; n < args.columns; n += TileRegisters::kPanels * kLanes) {
        float* y = args.y + (first + m) * args.y_stride + n;
        const Bf16Panel* panels = scratch.panels + n / kLanes;
        batch > TileRegisters::kHalf ? AddSteps<true>(args, panels, scratch.x[m], y)
                                     : AddSteps<false>(args, panels, scratch.x[m], y);
      }
    }
  }
}

}  // namespace
}  // namespace rullama::cpu
