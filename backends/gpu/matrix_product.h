// The matrix products of matvec.comp and matmul.comp, for ops_matmul.cc and ops_moe.cc.
#pragma once

#include "backends/gpu/plan_builder.h"

namespace rullama::gpu {

// Of a mixture of experts: kShared, all experts of a row read it; kPairs, each has a row of its
// own; kWeighted, the same, and the results of a row's experts are added up with weights; kSummed,
// the weights are in these rows.
enum class ProductMode : uint32_t {
  kDense = 0,
  kShared = 1,
  kPairs = 2,
  kWeighted = 3,
  kSummed = 4
};

// Rows of x up to which a product is computed row by row of the weights.
inline constexpr int64_t kFewProductRows = 8;
// Rows and results of a tile of matmul.comp, and rows of one of experts (moe_sort.comp).
inline constexpr int64_t kProductTile = 64;

struct Product {
  ProductMode mode = ProductMode::kDense;
  const DeviceWeight* weight = nullptr;
  DeviceAddress gate = 0;    // weights; of a gated product, the gate
  DeviceAddress up = 0;      // 0: not gated
  bool up_is_given = false;  // a gated product whose up is not a product: ProductOperands::extra
  rl_dim rows{};             // of x
  int64_t n = 0;             // results
  int64_t used = 1;          // experts of a row
  int64_t expert_count = 0;
  int64_t expert_rows = 0;  // rows of weights of an expert
};

// Where a product reads and writes: a value, or memory of the plan.
struct Operand {
  uint32_t value = RL_NO_VALUE;
  Scratch scratch{};
};

struct ProductOperands {
  Operand x, y;
  uint32_t experts = RL_NO_VALUE;
  Operand extra;  // weights of the pairs, or the table of moe_sort.comp
  Operand factor;
};

constexpr uint64_t CeilDiv(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

// Invocations of a workgroup that brings a row into shared memory first.
inline constexpr uint32_t kPrologueThreads = 256;

// Adds where an operand is to the push constants, and that it is read or written.
DispatchBuilder& Place(DispatchBuilder& dispatch, const Operand& operand, bool write);
// Adds the place of a record of what a product does first (prologue.glsl).
void AddPrologue(DispatchBuilder& dispatch, PlanBuilder& plan, const Prologue& prologue);

// Whether matvec_dot.comp can compute a product: of one row, which has to fit in shared memory. Of
// experts kShared, whose results it multiplies by ProductOperands::extra and factor, and kSummed.
bool GoesByBytes(const Tuning& tuning, const Product& product, int64_t most_rows);
// Does so. `prologue` may be null.
void RowByBytes(PlanBuilder& plan, const Product& product, const ProductOperands& operands,
                const Prologue* prologue);

// The rows of weights of a product, one expert after another if they are stacked.
Dispatch::Shares SharesOf(const Product& product);
// Divides the rows of weights of such a dispatch, or of one of matvec.comp, among so many
// workgroups.
void Divide(Dispatch& dispatch, const Tuning& tuning, uint64_t groups);
// Whether matvec_dot.comp computes both products of a moe_ffn.
bool ExpertsGoByBytes(const Tuning& tuning, const sdk::GraphView& graph, const rl_op& op);

// By rows of weights: any mode but kSummed.
void FewRows(PlanBuilder& plan, const Product& product, const ProductOperands& operands);
// In tiles; `tiles` of rows at most. Not kWeighted, not kSummed.
void ManyRows(PlanBuilder& plan, const Product& product, const ProductOperands& operands,
              int64_t tiles);

}  // namespace rullama::gpu
