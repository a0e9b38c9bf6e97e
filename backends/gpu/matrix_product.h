// Emits matrix products: GEMV (matvec, matvec_dot), tiled GEMM (matmul) and products
// with a matrix as it is stored (matmul_stored). Defined in ops_matmul.cc, ops_matvec_dot.cc
// and ops_matmul_stored.cc.
#pragma once

#include <cmath>
#include <string>

#include "backends/gpu/plan_builder.h"
#include "backends/gpu/product_tiles.h"

namespace rullama::gpu {

inline constexpr uint32_t kTileResults = 64;     // of a tile of matmul
inline constexpr uint32_t kStoredTileRows = 64;  // of an expert's tile in matmul_stored
inline constexpr uint32_t kTileThreads = 256;    // of a workgroup of matmul_stored or sum_parts
// Terms of a step of the kernels for matrix units, of all parts of x together.
inline constexpr uint64_t kCoopTerms = 64;

struct Product {
  ProductMode mode = ProductMode::kDense;
  const DeviceWeight* weight = nullptr;
  DeviceAddress gate = 0;    // the weights, or the gate's if the product is gated
  DeviceAddress up = 0;      // weights of up; 0: not gated
  DeviceAddress range = 0;   // f32[2], bounds of the results of EmitGemm() on matrix units; 0: none
  bool up_is_given = false;  // `up` is computed already: ProductOperands::extra
  rl_dim rows{};             // rows of x
  int64_t n = 0;             // output columns
  int64_t used = 1;          // experts used by a row
  int64_t expert_count = 0;
  int64_t expert_rows = 0;  // weight rows of an expert
};

struct ProductOperands {
  Operand x, y;
  uint32_t experts = RL_NO_VALUE;
  // Weights of the pairs, or ExpertTiles::table, which the emission of tiles fills in.
  Operand extra{};
  Operand factor{};
};

// moe_sort cuts the sorted pairs of row and expert into tiles. All pairs of a tile have one expert.
struct ExpertTiles {
  uint32_t rows = kSmallCoopTile.rows;  // of a tile
  CoopTile tile = kSmallCoopTile;       // of products on matrix units, which have these rows
  int64_t count = 0;                    // at most
  Scratch table{};
};

// Workgroup size of a GEMV that first stages its row in shared memory.
inline constexpr uint32_t kPrologueThreads = 256;

// Refuses a gated product whose weights have different types: one kernel decodes both. `up` may be
// absent.
std::string RefuseGated(const sdk::GraphView& graph, const rl_op& op, uint32_t gate, uint32_t up);

// The record of a prologue (kernels.def); none of null.
std::optional<kernels::Prologue> PrologueRecord(const Prologue* prologue);

// The facts that the choice of a GEMV depends on.
struct GemvShape {
  ProductMode mode;
  const WeightShape& weight;
  int64_t used;  // experts used by a row
};
// Whether matvec_dot.comp, the int8 dot product GEMV, can compute a product: it has one row, which
// fits in shared memory. For experts the mode must be kShared, whose results it multiplies by
// ProductOperands::extra and factor, or kSummed.
bool FitsInt8Gemv(const Target& target, const GemvShape& product, int64_t max_rows);
// Emits matvec_dot.comp for such a product. `prologue` may be null.
void EmitInt8Gemv(PlanBuilder& plan, const Product& product, const ProductOperands& operands,
                  const Prologue* prologue);

// The weight rows of a product. Stacked experts follow each other.
Dispatch::Shares SharesOf(const Product& product);
// Splits the weight rows of a matvec_dot.comp or matvec.comp dispatch among `groups` workgroups.
void Divide(Dispatch& dispatch, const Target& target, uint64_t groups);
// Whether matvec_dot.comp computes both products of a moe_ffn.
bool ExpertsFitInt8Gemv(const Target& target, const sdk::GraphView& graph, const rl_op& op);

// Emits a product of plain f32 matrices (matmul_plain); `adds`: to what y holds.
void EmitMatMulPlain(PlanBuilder& plan, kernels::MatMulPlainArgs args, bool adds = false);

// Whether products of many rows with these weights are computed on matrix units.
bool RunsOnMatrixUnits(const Target& target, const WeightShape& shape);
// Whether an op is a product with a constant that EmitGemm() computes on matrix units from one
// piece.
bool IsMatrixUnitGemm(const sdk::GraphView& graph, const Target& target, const rl_op& op);
// Whether EmitGemm() computes both products of a moe_ffn on matrix units.
bool AreMatrixUnitExperts(const sdk::GraphView& graph, const Target& target, const rl_op& op);
// The values of which a node stores f16 rows (FusedNode::half).
struct HalfSource {
  uint32_t x = RL_NO_VALUE;
  uint32_t up = RL_NO_VALUE;               // gelu(x) * up takes the place of x
  const Prologue* norms = nullptr;         // of x; without `up` and bounds
  float low = -INFINITY, high = INFINITY;  // bounds
};
// Emits the f16 rows of the current node for the products that read them. With norms it also stores
// the sum, and the value itself unless nothing else reads it.
void EmitHalfRows(PlanBuilder& plan, const HalfSource& source);

// The dense product x W^T with all rows of a weight.
Product DenseProduct(const PlanBuilder& plan, uint32_t weight, const rl_dim& rows);
// The arguments of a product of `terms` terms.
kernels::ProductArgs ProductArgsOf(const PlanBuilder& plan, const Product& p,
                                   const ProductOperands& o, uint64_t terms,
                                   const Prologue* prologue = nullptr);
// The rows of which EmitToHalf() makes f16 numbers.
struct HalfShape {
  rl_dim rows{};
  int64_t times = 1;  // rows of memory for each of `rows`
  int64_t columns = 0;
  uint64_t padded = 0;              // columns of the result; the rest is zeros
  uint32_t parts = 1;               // f16 numbers whose sum is a value
  uint32_t up = RL_NO_VALUE;        // gelu(x) * up takes the place of x
  DeviceAddress range = 0;          // f32[2], bounds to which values are clamped first; 0: none
  const Prologue* norms = nullptr;  // of x; without `up` and a range
  uint32_t whole = RL_NO_VALUE;     // with norms: the value that is stored in f32 too
};
// Emits to_half.comp. The result is in ScratchPool::Take memory.
HalfRows EmitToHalf(PlanBuilder& plan, const Operand& x, const HalfShape& shape);
// The f16 form of the rows that a product reads, made once for all products that read them. With
// two parts a value is the sum of two f16 numbers and nearly as exact as in f32. Rows are padded to
// whole steps of the kernels for matrix units.
HalfRows HalfOf(PlanBuilder& plan, const Product& product, const Operand& x, int64_t columns,
                uint32_t parts);
// Sums of parts of the terms of a product: `parts` tensors of rows of n results.
struct PartialSums {
  Scratch sums;
  rl_dim rows{};
  int64_t n = 0;
  uint64_t parts = 1;
  DeviceAddress range = 0;  // f32[2], bounds of the whole sums; 0: none
};
// y = the sum of the parts; `adds`: and of what y holds.
void AddParts(PlanBuilder& plan, const PartialSums& partial, const Operand& y, bool adds = false);
// y = y + x, of rows of n results.
void AddTo(PlanBuilder& plan, const Operand& y, const Operand& x, const rl_dim& rows, int64_t n);

// Emits a dense product that is not gated by the kernel for its number of rows, from all pieces of
// the weight.
void EmitProduct(PlanBuilder& plan, const Product& product, const ProductOperands& operands);
// Emits the dense product y = x W from all pieces of the weight. product.n: columns of W.
void EmitStored(PlanBuilder& plan, const Product& product, const ProductOperands& operands);
// Emits the same for experts, of mode kShared or kPairs, in tiles of kStoredTileRows rows.
void EmitStoredExperts(PlanBuilder& plan, const Product& product, ProductOperands operands,
                       const ExpertTiles& tiles);

// Emits a GEMV (matvec.comp). Accepts any mode but kSummed.
void EmitGemv(PlanBuilder& plan, const Product& product, const ProductOperands& operands);
// Emits a tiled GEMM. `tiles`: of experts. Accepts neither kWeighted nor kSummed.
void EmitGemm(PlanBuilder& plan, const Product& product, ProductOperands operands,
              const ExpertTiles& tiles = {});

}  // namespace rullama::gpu
