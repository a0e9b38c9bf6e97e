// Which kernel computes a product with the rows of a weight, and how its work is divided. Pure
// functions of the product, of the steps it is computed in, and of the target: emission
// (matrix_product.h) only carries the plan out, and the order of every sum follows from it.
// testdata/products.txt has plans as text.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "backends/gpu/kernels.h"
#include "backends/gpu/product_tiles.h"
#include "backends/gpu/target.h"
#include "backends/gpu/weights.h"

namespace rullama::gpu {

// Columns of a weight that a lane takes at a time, and columns of a tile of `matmul`.
inline constexpr uint64_t kProductChunk = 32;
inline constexpr uint32_t kTileResults = 64;
// Terms of a step of the kernels for matrix units, of all parts of x together.
inline constexpr uint64_t kCoopTerms = 64;
inline constexpr uint64_t kWarpgroupTerms = 128;
// Terms in f32 worth a workgroup of their own.
inline constexpr uint64_t kF32PartTerms = 128;

// Terms of a product with few rows of weights: a workgroup has a row of x in registers.
inline constexpr uint64_t kMostNarrowColumns = 16384;

struct ProductShape {
  ProductMode mode = ProductMode::kDense;
  WeightShape weight;
  int64_t n = 0;         // results of a row; of a gated product those of each half
  int64_t used = 1;      // experts used by a row
  bool gated = false;    // gelu(x gate^T) * (x up^T), of two weights of this shape
  bool gates = false;    // gelu(x weight^T) * up, which is computed already
  bool adapted = false;  // and what a low-rank adapter adds

  [[nodiscard]] uint64_t results() const { return static_cast<uint64_t>(n) * (gated ? 2 : 1); }
  [[nodiscard]] bool dense() const { return mode == ProductMode::kDense; }
  // Whether results are plain sums of terms, which several workgroups may share.
  [[nodiscard]] bool has_plain_sums() const { return dense() && !gated && !gates; }

  // As matvec_dot sees the product. Rows of weights: stacked experts follow each other.
  [[nodiscard]] uint64_t weight_rows() const {
    return static_cast<uint64_t>(mode == ProductMode::kShared ? n * used : n);
  }
  // Experts whose weights make one row, and the columns of that row.
  [[nodiscard]] uint64_t side_by_side() const {
    return mode == ProductMode::kSummed ? static_cast<uint64_t>(used) : 1;
  }
  [[nodiscard]] uint64_t staged_columns() const { return weight.columns * side_by_side(); }
};

// The tiles that sorted pairs of row and expert are cut into: all pairs of a tile have one expert.
struct ExpertTiling {
  uint32_t rows = kSmallCoopTile.rows;  // of a tile
  CoopTile tile = kSmallCoopTile;       // of products on matrix units, which have these rows
  uint64_t count = 0;                   // at most; 0: pairs are not sorted into tiles
};

// The steps that a product is computed in, and what stands beside it.
struct ProductStep {
  int64_t rows = 1;            // of x in the largest step
  int64_t decisive = 1;        // of x in the step by which kernels are chosen (PlanSteps::decisive)
  bool has_prologue = false;   // the product of a row normalises it first
  bool may_take_bytes = true;  // of experts: whether both products of a moe_ffn can
  uint32_t half_parts = 1;     // f16 numbers whose sum is a value of x on matrix units
  uint64_t results_beside = 0;  // results of a row of all products on matrix units that read it
  ExpertTiling experts;
};

struct Grid {
  uint64_t x = 1, y = 1, z = 1;  // workgroups
};

// A product of one row, or of several side by side, by dot products of bytes (matvec_dot).
struct ByteGemv {
  uint32_t threads;
  uint64_t turns;     // quads of the row that an invocation stages, at least
  uint64_t own_rows;  // rows of x of a workgroup
  bool together;      // subgroups stay together in loops
  Grid grid;
};
// A product of few rows (matvec).
struct Gemv {
  uint32_t threads;
  uint32_t lanes;   // that share a row of weights
  uint32_t nr;      // rows of weights of a group of lanes
  uint32_t nt;      // rows of x of a workgroup
  uint32_t unroll;  // chunks of a lane that are under way
  bool shares;      // any number of workgroups may split the rows of weights
  Grid grid;
};
// A product with few rows of weights in f32 (narrow_product).
struct NarrowProduct {
  uint32_t threads;
  Grid grid;
};
// A product of many rows in f32 (matmul).
struct TiledGemm {
  uint32_t tile_rows;
  uint64_t parts;  // of the terms
  Grid grid;
};
// A product of many rows on matrix units (matmul_coop).
struct CoopGemm {
  CoopTile tile;
  uint64_t parts;  // of the terms
  Grid grid;
};
// The same by warpgroups (matmul_warpgroup).
struct WarpgroupGemm {
  CoopTile tile;
  uint64_t parts;  // of the terms
  Grid grid;
  // The threads that multiply, and those that bring x.
  [[nodiscard]] constexpr uint32_t threads() const { return tile.threads() + 4 * kMatrixSubgroup; }
};
using ProductPlan = std::variant<ByteGemv, Gemv, NarrowProduct, TiledGemm, CoopGemm, WarpgroupGemm>;

[[nodiscard]] ProductPlan ChooseProduct(const ProductShape& shape, const ProductStep& step,
                                        const Target& target);
// One line for people and tests: the kernel, and its numbers by name.
[[nodiscard]] std::string ToText(const ProductPlan& plan);

// The facts that choices outside of a product depend on, too.

// Whether a product has many rows and, of experts, sorted ones, which are multiplied in tiles.
[[nodiscard]] bool MultipliesTiles(const ProductShape& shape, const ProductStep& step);
// Whether products of many rows with these weights are computed on matrix units.
[[nodiscard]] bool RunsOnMatrixUnits(const Target& target, const WeightShape& shape);
// Whether matvec_dot can compute a product: it has one row (`decisive`), which fits in shared
// memory. For experts the mode must be kShared, whose results it multiplies by
// ProductOperands::extra and factor, or kSummed.
[[nodiscard]] bool FitsByteGemv(const Target& target, const ProductShape& shape, int64_t decisive);
// Whether kernels check each column of a row, because it is not a whole number of chunks.
[[nodiscard]] inline bool HasRaggedRows(const WeightShape& weight) {
  return weight.columns % kProductChunk != 0;
}

}  // namespace rullama::gpu
