// Emits matrix products: GEMV (matvec, matvec_dot), tiled GEMM (matmul) and products
// with a matrix as it is stored (matmul_stored). Defined in ops_matmul.cc, ops_matvec_dot.cc
// and ops_matmul_stored.cc.
#pragma once

#include <cmath>
#include <string>

#include "backends/gpu/plan_builder.h"
#include "backends/gpu/product_plan.h"

namespace rullama::gpu {

inline constexpr uint32_t kStoredTileRows = 64;  // of an expert's tile in matmul_stored
inline constexpr uint32_t kTileThreads = 256;    // of a workgroup of matmul_stored or sum_parts

struct Product {
  ProductMode mode = ProductMode::kDense;
  const DeviceWeight* weight = nullptr;
  DeviceAddress gate = 0;    // the weights, or the gate's if the product is gated
  DeviceAddress up = 0;      // weights of up; 0: not gated
  DeviceAddress range = 0;   // f32[2], bounds of results on matrix units; 0: none
  bool up_is_given = false;  // `up` is computed already: ProductOperands::extra
  rl_dim rows{};             // rows of x
  int64_t n = 0;             // output columns
  int64_t used = 1;          // experts used by a row
  int64_t expert_count = 0;
  int64_t expert_rows = 0;            // weight rows of an expert
  const Epilogue* adapter = nullptr;  // of kind kAdapter
};

struct ProductOperands {
  Operand x, y;
  uint32_t experts = RL_NO_VALUE;
  // Weights of the pairs, or ExpertTiles::table, which the emission of tiles fills in.
  Operand extra{};
  Operand factor{};
};

// The sorted pairs of row and expert, as moe_sort leaves them.
struct ExpertTiles {
  ExpertTiling tiling;
  Scratch table{};
};

// Refuses a gated product whose weights have different types: one kernel decodes both. `up` may be
// absent.
std::string RefuseGated(const sdk::GraphView& graph, const rl_op& op, uint32_t gate, uint32_t up);

// The record of a prologue (kernels.def); nothing if `prologue` is null.
std::optional<kernels::Prologue> PrologueRecord(const Prologue* prologue);

ProductShape ShapeOf(const Product& product);
// The weight rows of a product.
Dispatch::Shares SharesOf(const Product& product);
// Splits the weight rows of a matvec_dot or matvec dispatch among `groups` workgroups.
void Divide(Dispatch& dispatch, const Target& target, uint64_t groups);
// Whether matvec_dot.comp computes both products of a moe_ffn.
bool ExpertsFitByteGemv(const Target& target, const sdk::GraphView& graph, const rl_op& op);

// Emits a product of plain f32 matrices (matmul_plain); `adds`: to what y holds.
void EmitMatMulPlain(PlanBuilder& plan, kernels::MatMulPlainArgs args, bool adds = false);

// The weight of a matmul with the rows of a constant, or the gate of a geglu_linear; null for other
// ops.
const rl_value* WeightOfLinear(const sdk::GraphView& graph, const rl_op& op);

// Whether an op is a product with a constant that is computed on matrix units from one
// piece.
bool IsMatrixUnitGemm(const sdk::GraphView& graph, const Target& target, const rl_op& op);
// Whether both products of a moe_ffn are computed on matrix units.
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
// Emits to_half.kernel. The result is in ScratchPool::Take memory.
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

// Further facts for the choice and emission of a product of experts.
struct ExpertStep {
  bool may_take_bytes = false;  // ExpertsFitByteGemv()
  ExpertTiles tiles{};          // of many rows
};
// Emits a product by the kernel that ChooseProduct() finds. Accepts one piece of the weight, and
// experts of mode kShared or kPairs, with few rows also kWeighted, by bytes also kSummed.
void EmitChosen(PlanBuilder& plan, const Product& product, const ProductOperands& operands,
                const ExpertStep& experts = {});
// Emits a dense product that is not gated from all pieces of the weight.
void EmitProduct(PlanBuilder& plan, const Product& product, const ProductOperands& operands);
// Emits the dense product y = x W from all pieces of the weight. product.n: columns of W.
void EmitStored(PlanBuilder& plan, const Product& product, const ProductOperands& operands);
// Emits the same for experts, of mode kShared or kPairs, in tiles of kStoredTileRows rows.
void EmitStoredExperts(PlanBuilder& plan, const Product& product, ProductOperands operands,
                       const ExpertTiles& tiles);

// The kernels of ProductPlan: each carries out its row. EmitByteGemv is in ops_matvec_dot.cc.
void EmitByteGemv(PlanBuilder& plan, const Product& product, const ProductOperands& operands,
                  const ByteGemv& how, const Prologue* prologue);

}  // namespace rullama::gpu
