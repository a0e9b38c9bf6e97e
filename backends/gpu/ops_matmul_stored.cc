// Products with a matrix as it is stored, whose rows are the terms of the sums.
#include <rullama/sdk/slots.h>

#include <algorithm>

#include "backends/gpu/matrix_product.h"

namespace rullama::gpu {
namespace {

// The division of a product among the workgroups of a dispatch.
struct StoredSplit {
  uint64_t terms;
  uint64_t rows;   // of x, for which each workgroup in y takes some
  uint64_t parts;  // of the terms, each for a workgroup in z
};

void EmitInChunks(PlanBuilder& plan, const Product& product, const ProductOperands& operands,
                  const StoredSplit& split) {
  constexpr uint32_t kThreads = 64;
  constexpr uint64_t kRows = 4, kChunk = 32;  // of a workgroup, of an invocation
  const uint32_t threads = plan.target().Threads(kThreads);
  const WeightShape& shape = product.weight->shape();
  DispatchBuilder(
      plan, kernels::MatMulStored{.threads = threads, .type = shape.dtype, .mode = product.mode},
      ProductArgsOf(plan, product, operands, split.terms))
      .Emit(CeilDiv(CeilDiv(shape.columns, kChunk), threads), CeilDiv(split.rows, kRows),
            split.parts);
}

// The tile of matmul_stored_coop.comp.
constexpr uint64_t kStoredTile = 128;
static_assert(FitsMatrixThreads(kTileThreads));

bool FitsMatrixUnits(const Target& target, const WeightShape& shape, const StoredSplit& split) {
  return target.can.matrix_units && target.can.special_kernels &&
         !target.prefers.precise_products && IsBlockType(shape.dtype) &&
         split.rows > sdk::kFewRows && split.terms % kCoopTerms == 0 &&
         shape.columns % kStoredTile == 0;
}

void EmitOnMatrixUnits(PlanBuilder& plan, const Product& product, ProductOperands operands,
                       const StoredSplit& split) {
  const WeightShape& shape = product.weight->shape();
  const HalfRows half = HalfOf(plan, product, operands.x, static_cast<int64_t>(split.terms), 1);
  operands.x.scratch = half.rows;
  operands.factor.scratch = half.factors;
  DispatchBuilder(plan, kernels::MatMulStoredCoop{.threads = kTileThreads, .type = shape.dtype},
                  ProductArgsOf(plan, product, operands, split.terms))
      .Emit(CeilDiv(shape.columns, kStoredTile), CeilDiv(split.rows, kStoredTile), split.parts);
}

// Long sums are cut into parts, and shorter ones where there are too few tiles of results to keep
// half of the device busy.
uint64_t PartsOf(const Target& target, const WeightShape& shape, uint64_t rows, uint64_t terms) {
  // Terms worth a workgroup of their own in any case, and where others would be idle.
  constexpr uint64_t kPartTerms = 4096, kFewTerms = 512, kMaxParts = 32;
  // Counted in tiles of the kernel for matrix units. That of other devices has at least as many
  // workgroups for more than a few rows.
  const uint64_t tiles =
      std::max<uint64_t>(CeilDiv(shape.columns, kStoredTile) * CeilDiv(rows, kStoredTile), 1);
  const uint64_t idle = target.can.is_cpu ? 0 : target.prefers.few_groups / 2 / tiles;
  const uint64_t wanted = std::max(terms / kPartTerms, idle);
  return std::clamp<uint64_t>(wanted, 1, std::clamp<uint64_t>(terms / kFewTerms, 1, kMaxParts));
}

// A product of `terms` rows of the weight from product.gate on.
void EmitDense(PlanBuilder& plan, const Product& product, const ProductOperands& operands,
               uint64_t terms) {
  const WeightShape& shape = product.weight->shape();
  const auto rows = static_cast<uint64_t>(plan.Max(product.rows));
  const auto decisive = static_cast<uint64_t>(plan.Decisive(product.rows));
  const StoredSplit split{terms, rows, PartsOf(plan.target(), shape, decisive, terms)};
  ProductOperands part = operands;
  if (split.parts > 1) {
    const uint64_t bytes = split.parts * split.rows * shape.columns * sizeof(float);
    part.y = {.scratch = plan.scratch().Take(bytes)};
  }
  if (FitsMatrixUnits(plan.target(), shape, split)) {
    EmitOnMatrixUnits(plan, product, part, split);
  } else {
    EmitInChunks(plan, product, part, split);
  }
  if (split.parts == 1) return;
  AddParts(plan,
           {.sums = part.y.scratch, .rows = product.rows, .n = product.n, .parts = split.parts},
           operands.y);
  plan.scratch().GiveBack(part.y.scratch);
}

// Each piece of the weight has some of the terms: y is the sum of its products.
void EmitByPieces(PlanBuilder& plan, Product product, const ProductOperands& operands) {
  const auto terms = static_cast<int64_t>(product.weight->shape().rows);
  const auto bytes_of = [&](uint64_t columns) {
    return static_cast<uint64_t>(plan.Max(product.rows)) * columns * sizeof(float);
  };
  const Scratch sum = plan.scratch().Take(bytes_of(product.weight->shape().columns));
  bool first = true;
  for (const DeviceWeight::Piece& piece : product.weight->pieces()) {
    const Scratch x = plan.scratch().Take(bytes_of(piece.rows.count));
    CopyColumns(plan, {.rows = product.rows,
                       .columns = static_cast<int64_t>(piece.rows.count),
                       .from = operands.x,
                       .from_columns = terms,
                       .from_first = static_cast<int64_t>(piece.rows.first),
                       .to = {.scratch = x},
                       .to_columns = static_cast<int64_t>(piece.rows.count)});
    product.gate = piece.address;
    ProductOperands part = operands;
    part.x = {.scratch = x};
    if (!first) part.y = {.scratch = sum};
    EmitDense(plan, product, part, piece.rows.count);
    if (!first) AddTo(plan, operands.y, {.scratch = sum}, product.rows, product.n);
    plan.scratch().GiveBack(x);
    first = false;
  }
  plan.scratch().GiveBack(sum);
}

}  // namespace

void EmitStored(PlanBuilder& plan, const Product& product, const ProductOperands& operands) {
  if (product.weight->pieces().size() > 1) {
    EmitByPieces(plan, product, operands);
  } else {
    EmitDense(plan, product, operands, product.weight->shape().rows);
  }
}

void EmitStoredExperts(PlanBuilder& plan, const Product& product, ProductOperands operands,
                       const ExpertTiles& tiles) {
  operands.extra.scratch = tiles.table;
  EmitInChunks(plan, product, operands,
               {.terms = static_cast<uint64_t>(product.expert_rows),
                .rows = static_cast<uint64_t>(tiles.tiling.count * tiles.tiling.rows),
                .parts = 1});
}

}  // namespace rullama::gpu
