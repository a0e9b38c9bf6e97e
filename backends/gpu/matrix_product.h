// Emits matrix products: GEMV (matvec.comp, matvec_dot.comp) and tiled GEMM (matmul.comp). Used by
// ops_matmul.cc and ops_moe.cc; defined in ops_matmul.cc and ops_matvec_dot.cc.
#pragma once

#include <string>

#include "backends/gpu/plan_builder.h"

namespace rullama::gpu {

// Rows and columns of an output tile of matmul.comp, and rows of an expert's tile (moe_sort.comp).
inline constexpr int64_t kProductTile = 64;

struct Product {
  ProductMode mode = ProductMode::kDense;
  const DeviceWeight* weight = nullptr;
  DeviceAddress gate = 0;    // the weights, or the gate's if the product is gated
  DeviceAddress up = 0;      // weights of up; 0: not gated
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
  Operand extra;  // weights of the pairs, or the table of moe_sort.comp
  Operand factor;
};

constexpr uint64_t CeilDiv(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

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
bool FitsInt8Gemv(const Tuning& tuning, const GemvShape& product, int64_t max_rows);
// Emits matvec_dot.comp for such a product. `prologue` may be null.
void EmitInt8Gemv(PlanBuilder& plan, const Product& product, const ProductOperands& operands,
                  const Prologue* prologue);

// The weight rows of a product. Stacked experts follow each other.
Dispatch::Shares SharesOf(const Product& product);
// Splits the weight rows of a matvec_dot.comp or matvec.comp dispatch among `groups` workgroups.
void Divide(Dispatch& dispatch, const Tuning& tuning, uint64_t groups);
// Whether matvec_dot.comp computes both products of a moe_ffn.
bool ExpertsFitInt8Gemv(const Tuning& tuning, const sdk::GraphView& graph, const rl_op& op);

// Emits a product of plain f32 matrices (matmul_plain.comp); `adds`: to what y holds.
void EmitMatMulPlain(PlanBuilder& plan, const kernels::MatMulPlainArgs& args, bool adds = false);

// Emits a GEMV (matvec.comp). Accepts any mode but kSummed.
void EmitGemv(PlanBuilder& plan, const Product& product, const ProductOperands& operands);
// Emits a tiled GEMM with at most `tiles` tiles of rows. Accepts neither kWeighted nor kSummed.
void EmitGemm(PlanBuilder& plan, const Product& product, const ProductOperands& operands,
              int64_t tiles);

}  // namespace rullama::gpu
