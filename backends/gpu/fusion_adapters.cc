// Products with their low-rank adapters in one node: of one row by bytes (GatedAdapter in
// kernels.def), and of many rows on matrix units (LowRank).
#include <rullama/sdk/operands.h>

#include <optional>

#include "backends/gpu/fusion_rules.h"
#include "backends/gpu/matrix_product.h"

namespace rullama::gpu {
namespace {

using sdk::GraphView;

constexpr int64_t kMostRank = kernels::MatVecDot::kMostRank;

// The ops of an adapted product.
struct AdaptedProduct {
  uint32_t base, a, b, sum;
};
constexpr size_t kOps = 4;

uint32_t WeightOf(const rl_op& linear) { return linear.inputs[operands::MatMul::weight]; }

// The only reader of a private value, or RL_NO_OP.
uint32_t OnlyUserOf(const Fusion& fusion, uint32_t value) {
  const std::vector<uint32_t>& readers = fusion.uses().ReadersOf(value);
  return IsPrivate(fusion.value(value)) && readers.size() == 1 ? readers.front() : RL_NO_OP;
}

bool IsOnePiece(const Fusion& fusion, uint32_t weight) {
  return PiecesOf(ShapeOfConstant(fusion.value(weight)), fusion.target().can.max_piece_bytes)
             .size() == 1;
}

// Whether an op is a matmul with the rows of a constant in one piece.
bool IsLinear(const Fusion& fusion, uint32_t index) {
  if (index == RL_NO_OP) return false;
  const rl_op& op = OpOf(fusion, index);
  return op.kind == RL_OP_matmul && WeightOfLinear(fusion.graph(), op) != nullptr &&
         IsOnePiece(fusion, WeightOf(op));
}

bool IsAdapterMatrix(const Fusion& fusion, uint32_t linear) {
  return TypeOf(fusion.value(WeightOf(OpOf(fusion, linear)))) == DType::kF32;
}

// The rows of the weight of a matmul that IsLinear().
int64_t RowsOf(const Fusion& fusion, uint32_t linear) {
  return fusion.value(WeightOf(OpOf(fusion, linear))).dims[0].constant;
}

int64_t RankOf(const Fusion& fusion, const AdaptedProduct& product) {
  return RowsOf(fusion, product.a);
}

// Whether the kernel for adapted products of one row computes a product, of two weights if it is
// gated. Its workgroups wait for the first ones.
bool FitsByteKernel(const Fusion& fusion, uint32_t base, bool gated) {
  const rl_op& op = OpOf(fusion, base);
  const WeightShape weight = ShapeOfConstant(fusion.value(WeightOf(op)));
  return fusion.target().can.starts_in_order && fusion.steps().LeaveTransientsUnaliased() &&
         FitsByteGemv(fusion.target(), {.weight = weight, .gated = gated, .adapted = true},
                      fusion.steps().DecisiveRows(fusion.value(op.results[0])));
}

// Whether the kernels for matrix units compute a product of many rows, whose ops are in the graph
// one after another. It writes the result of the last one where the first one is. Memory is shared
// there, but between the two only x can cease to be read, whose rows in f16 the product reads.
bool FitsMatrixUnits(const Fusion& fusion, const AdaptedProduct& product, uint32_t last,
                     size_t op_count) {
  constexpr uint64_t kBlock = kernels::LowRankInner::kTerms;
  const uint32_t base = product.base;
  const uint64_t blocks = CeilDiv(static_cast<uint64_t>(RankOf(fusion, product)), kBlock);
  const uint64_t halves = op_count > kOps ? 2 : 1;
  if (blocks * halves > kernels::MatMulWarpgroup::kMostBlocks) return false;
  const Target& target = fusion.target();
  const rl_op& op = OpOf(fusion, base);
  const WeightShape weight = ShapeOfConstant(fusion.value(WeightOf(op)));
  return IsMatrixUnitGemm(fusion.graph(), target, op) && !target.prefers.precise_products &&
         !fusion.learns() && !LossDependsOnExperts(fusion.graph()) && weight.columns % 4 == 0 &&
         last - base + 1 == op_count;
}

// `last`: the op whose result the node stores; `op_count`: the ops that it computes.
bool FitsKernel(const Fusion& fusion, const AdaptedProduct& product, uint32_t last,
                size_t op_count) {
  return FitsByteKernel(fusion, product.base, /*gated=*/op_count > kOps) ||
         FitsMatrixUnits(fusion, product, last, op_count);
}

// x W^T + (x A^T) B^T, whose first op is `base`.
std::optional<AdaptedProduct> FindAdapted(const Fusion& fusion, uint32_t base) {
  if (!IsLinear(fusion, base)) return std::nullopt;
  const rl_op& product = OpOf(fusion, base);
  const uint32_t sum = OnlyUserOf(fusion, product.results[0]);
  if (sum == RL_NO_OP || OpOf(fusion, sum).kind != RL_OP_binary ||
      GraphView::attrs<rl_binary_attrs>(OpOf(fusion, sum)).fn != RL_BINARY_ADD) {
    return std::nullopt;
  }
  const rl_op& add = OpOf(fusion, sum);
  const bool first = add.inputs[operands::Binary::a] == product.results[0];
  const uint32_t change = add.inputs[first ? operands::Binary::b : operands::Binary::a];
  const uint32_t b = fusion.uses().ProducerOf(change);
  if (!IsLinear(fusion, b) || OnlyUserOf(fusion, change) != sum) return std::nullopt;
  const uint32_t inner = OpOf(fusion, b).inputs[operands::MatMul::x];
  const uint32_t a = fusion.uses().ProducerOf(inner);
  if (!IsLinear(fusion, a) || a < base || OnlyUserOf(fusion, inner) != b) return std::nullopt;
  const AdaptedProduct found{base, a, b, sum};
  const bool fits =
      OpOf(fusion, a).inputs[operands::MatMul::x] == product.inputs[operands::MatMul::x] &&
      IsAdapterMatrix(fusion, a) && IsAdapterMatrix(fusion, b) &&
      // The sum may broadcast one of the products.
      RowsOf(fusion, b) == RowsOf(fusion, base) && RankOf(fusion, found) <= kMostRank;
  return fits ? std::optional(found) : std::nullopt;
}

// The adapted product that gives a value that nothing else reads.
std::optional<AdaptedProduct> AdaptedProducerOf(const Fusion& fusion, uint32_t value) {
  const uint32_t sum = fusion.uses().ProducerOf(value);
  if (sum == RL_NO_OP || OpOf(fusion, sum).kind != RL_OP_binary) return std::nullopt;
  for (const uint32_t operand : {operands::Binary::a, operands::Binary::b}) {
    const uint32_t base = fusion.uses().ProducerOf(OpOf(fusion, sum).inputs[operand]);
    if (base == RL_NO_OP) continue;
    if (const auto found = FindAdapted(fusion, base); found && found->sum == sum) return found;
  }
  return std::nullopt;
}

LowRank MatricesOf(const Fusion& fusion, const AdaptedProduct& product) {
  return {WeightOf(OpOf(fusion, product.a)), WeightOf(OpOf(fusion, product.b))};
}

// The product with the weight computes the other ops of the adapter.
void TakeIn(Fusion& fusion, uint32_t main, const AdaptedProduct& product) {
  for (const uint32_t op : {product.base, product.a, product.b, product.sum}) {
    if (op != main) fusion.FuseInto(main, op);
  }
}

void Store(Fusion& fusion, uint32_t main, Epilogue epilogue, uint32_t last) {
  epilogue.kind = EpilogueKind::kAdapter;
  epilogue.result = OpOf(fusion, last).results[0];
  fusion.node(main).epilogue = epilogue;
  fusion.StoreIn(main, epilogue.result);
}

// gelu of one adapted product times another, of weights of one type and shape with adapters of one
// rank.
bool FuseGated(Fusion& fusion, const AdaptedProduct& gate) {
  using operands::GeGlu;
  const uint32_t geglu = OnlyUserOf(fusion, OpOf(fusion, gate.sum).results[0]);
  if (geglu == RL_NO_OP || OpOf(fusion, geglu).kind != RL_OP_geglu) return false;
  const rl_op& gated = OpOf(fusion, geglu);
  if (gated.inputs[GeGlu::gate] != OpOf(fusion, gate.sum).results[0] ||
      OnlyUserOf(fusion, gated.inputs[GeGlu::up]) != geglu) {
    return false;
  }
  const auto up = AdaptedProducerOf(fusion, gated.inputs[GeGlu::up]);
  if (!up || up->base < gate.base || RankOf(fusion, *up) != RankOf(fusion, gate)) return false;
  const rl_op& first = OpOf(fusion, gate.base);
  const rl_op& second = OpOf(fusion, up->base);
  const rl_value& weight = fusion.value(WeightOf(first));
  const rl_value& other = fusion.value(WeightOf(second));
  const bool fits = first.inputs[operands::MatMul::x] == second.inputs[operands::MatMul::x] &&
                    weight.dtype == other.dtype &&
                    weight.dims[0].constant == other.dims[0].constant &&
                    FitsKernel(fusion, gate, geglu, 2 * kOps + 1);
  if (!fits) return false;
  TakeIn(fusion, gate.base, gate);
  TakeIn(fusion, gate.base, *up);
  fusion.FuseInto(gate.base, geglu);
  Store(fusion, gate.base,
        {.up = WeightOf(second),
         .adapter = MatricesOf(fusion, gate),
         .up_adapter = MatricesOf(fusion, *up)},
        geglu);
  return true;
}

}  // namespace

void FuseAdapters(Fusion& fusion) {
  for (uint32_t i = 0; i < fusion.graph().op_count(); ++i) {
    if (fusion.IsFused(i)) continue;
    const auto product = FindAdapted(fusion, i);
    if (!product || FuseGated(fusion, *product) ||
        !FitsKernel(fusion, *product, product->sum, kOps)) {
      continue;
    }
    TakeIn(fusion, i, *product);
    Store(fusion, i, {.adapter = MatricesOf(fusion, *product)}, product->sum);
  }
}

}  // namespace rullama::gpu
