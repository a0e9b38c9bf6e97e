#include "backends/gpu/product_plan.h"

#include <rullama/sdk/slots.h>

#include <algorithm>
#include <bit>
#include <initializer_list>
#include <utility>

namespace rullama::gpu {
namespace {

constexpr uint32_t kGemvThreads = 128;
// Terms worth a workgroup of their own on matrix units.
constexpr uint64_t kMatrixUnitPartTerms = 256;

// Rows of x of a product that fit in shared memory at the same time, as matvec_dot stages them
// (kRuns), in addition to what its reductions take and, with an adapter, its sums (sums_of_a).
uint64_t StagedRows(const Target& target, const ProductShape& shape) {
  constexpr uint64_t kReductionBytes = 2048, kMostSubgroups = 256;
  constexpr uint64_t kSumBytes = kernels::MatVecDot::kMostRowsOfA * kMostSubgroups * sizeof(float);
  constexpr uint64_t kBytes = 2, kScaleBytes = 8, kRun = 16, kPlaces = 256;
  const uint64_t places = CeilDiv(shape.staged_columns(), kPlaces) * kPlaces;
  const uint64_t row = places * kBytes + places / kRun * kScaleBytes;
  const uint64_t other = kReductionBytes + (shape.adapted ? kSumBytes : 0);
  return target.can.shared_bytes < other ? 0 : (target.can.shared_bytes - other) / row;
}

// Rows of x of a workgroup: several share the decoded weights, but each takes registers. On matrix
// units they are a power of two, and four lanes at least share a row of weights (LanesFor).
uint64_t OwnRows(const Target& target, const ProductShape& shape, uint64_t rows) {
  constexpr uint64_t kMaxOwnRows = 4, kLeastColumns = 8 * kProductChunk;
  if (!shape.dense()) return 1;  // each row has experts of its own
  const uint64_t matrix_rows = target.can.integer_matrix_rows;
  if (matrix_rows > 0 && !shape.adapted) {
    return shape.staged_columns() < kLeastColumns ? 1 : std::min(std::bit_ceil(rows), matrix_rows);
  }
  return std::clamp<uint64_t>(std::min(rows, StagedRows(target, shape)), 1, kMaxOwnRows);
}

ByteGemv ByteGemvOf(const ProductShape& shape, const ProductStep& step, const Target& target) {
  constexpr uint64_t kQuad = 4;
  const uint32_t threads = target.Threads(target.prefers.row_threads);
  // Quads of the row that an invocation brings to shared memory at a time, at least.
  const uint64_t min_turns = threads > kPrologueThreads ? 1 : 2;
  const uint64_t columns = shape.staged_columns();
  const auto rows = static_cast<uint64_t>(step.rows);
  const uint64_t own_rows = OwnRows(target, shape, rows);
  return {.threads = threads,
          .turns = std::max(min_turns, step.has_prologue ? CeilDiv(columns, kQuad * threads) : 0),
          .own_rows = own_rows,
          .together = target.quirks.skipped_loops_pass_barriers && target.prefers.fixed_groups,
          .grid = {std::clamp<uint64_t>(target.prefers.RowGroups(), 1, shape.weight_rows()),
                   CeilDiv(rows, own_rows)}};
}

// Rows of weights of a group of lanes: several, so that it reads x less often, where enough groups
// are left to hide the latency of memory.
uint32_t RowsOfLanes(const ProductShape& shape, const ProductStep& step, const Target& target) {
  constexpr int64_t kManyResults = 4096, kVeryManyResults = 65536;
  if (!shape.dense() || step.decisive != 1 || target.can.is_cpu) return 1;
  if (shape.n >= kVeryManyResults) return shape.gated ? 2 : 4;
  return shape.n >= kManyResults ? 2 : 1;
}

Gemv GemvOf(const ProductShape& shape, const ProductStep& step, const Target& target) {
  // Chunks of weights a lane has under way: more would take too many registers.
  constexpr uint32_t kChunksUnderWay = 4, kMaxLanes = 32, kMaxOwnRows = 4;
  Gemv plan{};
  plan.threads = target.Threads(step.has_prologue ? kPrologueThreads : kGemvThreads);
  // Lanes that share a row: as many as find two chunks each, at most a subgroup.
  const uint64_t chunks = CeilDiv(shape.weight.columns, kProductChunk);
  const uint32_t max_lanes = std::min(target.can.subgroups ? target.can.subgroup_size : kMaxLanes,
                                      target.Threads(kGemvThreads) == 1 ? 1U : kMaxLanes);
  plan.lanes = static_cast<uint32_t>(
      std::clamp<uint64_t>(std::bit_floor(std::max<uint64_t>(chunks / 2, 1)), 1, max_lanes));
  plan.nr = RowsOfLanes(shape, step, target);
  const auto decisive = static_cast<uint64_t>(std::max<int64_t>(step.decisive, 1));
  const uint64_t rows_together = shape.dense() ? std::bit_ceil(decisive) : 1;
  plan.nt = static_cast<uint32_t>(std::min<uint64_t>(rows_together, kMaxOwnRows));
  const uint32_t halves = shape.gated ? 2 : 1;
  const uint64_t under_way = std::max(kChunksUnderWay / (halves * plan.nr), 1U);
  plan.unroll = target.can.is_cpu || rows_together > 1
                    ? 1
                    : static_cast<uint32_t>(std::min(CeilDiv(chunks, plan.lanes), under_way));
  plan.grid.x =
      CeilDiv(static_cast<uint64_t>(shape.n), uint64_t{plan.threads / plan.lanes} * plan.nr);
  plan.grid.y = CeilDiv(static_cast<uint64_t>(step.rows), plan.nt);
  if (shape.mode == ProductMode::kShared || shape.mode == ProductMode::kPairs) {
    plan.grid.y = static_cast<uint64_t>(step.rows * shape.used);
  }
  // If each workgroup costs a prologue or an entry of a list, or is one thread of a CPU, few
  // workgroups take several turns each.
  if (step.has_prologue || target.prefers.fixed_groups || plan.threads == 1) {
    const bool one_row = step.decisive == 1 && shape.dense();
    const uint64_t times = one_row ? 1 : std::max<uint64_t>(plan.grid.y, 1);
    plan.shares = times == 1;
    plan.grid.x = std::min(plan.grid.x, std::max<uint64_t>(target.prefers.few_groups / times, 1));
  }
  return plan;
}

// Whether the rows of weights are so few that each result needs its own workgroup: with a subgroup
// for each, eight rows of 12,288 columns take longer than the product that they adapt.
bool FitsNarrow(const ProductShape& shape, const Target& target) {
  constexpr int64_t kMostResults = 64;
  return target.Threads(kPrologueThreads) > 1 && shape.has_plain_sums() &&
         shape.n <= kMostResults && shape.weight.dtype == DType::kF32 &&
         shape.weight.columns % 4 == 0 && shape.weight.columns <= kMostNarrowColumns;
}

NarrowProduct NarrowProductOf(const ProductShape& shape, const ProductStep& step,
                              const Target& target) {
  const auto rows = static_cast<uint64_t>(step.rows), results = static_cast<uint64_t>(shape.n);
  return {.threads = target.Threads(kPrologueThreads),
          .grid = {step.decisive > sdk::kFewRows ? 1 : results, rows}};
}

TiledGemm TiledGemmOf(const ProductShape& shape, const ProductStep& step, const Target& target) {
  const auto rows = static_cast<uint64_t>(step.rows);
  const uint32_t tile_rows = shape.dense() ? F32TileRows(rows) : step.experts.rows;
  const uint64_t tiles = shape.dense() ? CeilDiv(rows, tile_rows) : step.experts.count;
  const uint64_t columns = CeilDiv(static_cast<uint64_t>(shape.n), kTileResults);
  uint64_t parts = 1;
  if (shape.has_plain_sums()) {
    parts = WholeParts(CeilDiv(shape.weight.columns, kProductChunk),
                       PartsOfSums(target, columns * tiles, shape.weight.columns, kF32PartTerms));
  }
  return {.tile_rows = tile_rows, .parts = parts, .grid = {columns, tiles, parts}};
}

// A dense product on matrix units, by a kernel that takes `terms` terms at a time.
CoopShape CoopShapeOf(const ProductShape& shape, const ProductStep& step, uint64_t terms) {
  const uint64_t all = shape.weight.columns;
  return {.rows = static_cast<uint64_t>(step.rows),
          .columns = std::max(step.results_beside, shape.results()),
          .steps = CeilDiv(all, terms),
          .max_parts = shape.has_plain_sums() ? CeilDiv(all, kMatrixUnitPartTerms) : 1};
}

Grid GridOf(const ProductShape& shape, const ProductStep& step, const CoopDivision& division) {
  const auto rows = static_cast<uint64_t>(step.rows);
  return {CeilDiv(shape.results(), division.tile.columns),
          shape.dense() ? CeilDiv(rows, division.tile.rows) : step.experts.count, division.parts};
}

CoopGemm CoopGemmOf(const ProductShape& shape, const ProductStep& step, const Target& target) {
  const CoopDivision division =
      shape.dense() ? DivisionOf(target, CoopShapeOf(shape, step, kCoopTerms / step.half_parts))
                    : CoopDivision{step.experts.tile};
  return {.tile = division.tile, .parts = division.parts, .grid = GridOf(shape, step, division)};
}

// Few rows leave most of a tile empty. The kernel takes activations in one part.
bool RunsByWarpgroups(const Target& target, const ProductShape& shape, const ProductStep& step) {
  const auto knows = target.can.multiplies_by_warpgroups;
  const bool fills_tiles = shape.dense() ? step.rows > kSmallCoopTile.rows
                                         : step.experts.rows == kLargeWarpgroupTile.rows;
  return knows != nullptr && knows(shape.weight.dtype) && step.half_parts == 1 && fills_tiles;
}

WarpgroupGemm WarpgroupGemmOf(const ProductShape& shape, const ProductStep& step,
                              const Target& target) {
  const CoopDivision division =
      shape.dense() ? WarpgroupDivisionOf(target, CoopShapeOf(shape, step, kWarpgroupTerms))
                    : CoopDivision{kLargeWarpgroupTile};
  return {.tile = division.tile, .parts = division.parts, .grid = GridOf(shape, step, division)};
}

std::string Numbers(std::initializer_list<std::pair<const char*, uint64_t>> numbers) {
  std::string text;
  for (const auto& [name, value] : numbers) {
    text += ' ' + std::string(name) + '=' + std::to_string(value);
  }
  return text;
}

std::string ToText(const Grid& grid) {
  return " grid=" + std::to_string(grid.x) + 'x' + std::to_string(grid.y) + 'x' +
         std::to_string(grid.z);
}

std::string TextOf(const ByteGemv& plan) {
  return "matvec_dot" +
         Numbers({{"threads", plan.threads},
                  {"turns", plan.turns},
                  {"own_rows", plan.own_rows},
                  {"together", plan.together ? 1 : 0}}) +
         ToText(plan.grid);
}
std::string TextOf(const Gemv& plan) {
  return "matvec" +
         Numbers({{"threads", plan.threads},
                  {"lanes", plan.lanes},
                  {"nr", plan.nr},
                  {"nt", plan.nt},
                  {"unroll", plan.unroll},
                  {"shares", plan.shares ? 1 : 0}}) +
         ToText(plan.grid);
}
std::string TextOf(const NarrowProduct& plan) {
  return "narrow_product" + Numbers({{"threads", plan.threads}}) + ToText(plan.grid);
}
std::string TextOf(const TiledGemm& plan) {
  return "matmul" + Numbers({{"tile", plan.tile_rows}, {"parts", plan.parts}}) + ToText(plan.grid);
}
std::string TextOf(const CoopGemm& plan) {
  return "matmul_coop" +
         Numbers({{"rows", plan.tile.rows},
                  {"columns", plan.tile.columns},
                  {"subgroup_rows", plan.tile.subgroup_rows},
                  {"subgroup_columns", plan.tile.subgroup_columns},
                  {"parts", plan.parts}}) +
         ToText(plan.grid);
}
std::string TextOf(const WarpgroupGemm& plan) {
  return "matmul_warpgroup" +
         Numbers(
             {{"rows", plan.tile.rows}, {"columns", plan.tile.columns}, {"parts", plan.parts}}) +
         ToText(plan.grid);
}

}  // namespace

bool MultipliesTiles(const ProductShape& shape, const ProductStep& step) {
  return step.decisive > sdk::kFewRows && (shape.dense() || step.experts.count > 0);
}

ProductPlan ChooseProduct(const ProductShape& shape, const ProductStep& step,
                          const Target& target) {
  if (FitsNarrow(shape, target)) return NarrowProductOf(shape, step, target);
  if (MultipliesTiles(shape, step)) {
    if (!RunsOnMatrixUnits(target, shape.weight)) return TiledGemmOf(shape, step, target);
    if (RunsByWarpgroups(target, shape, step)) return WarpgroupGemmOf(shape, step, target);
    return CoopGemmOf(shape, step, target);
  }
  if (step.may_take_bytes && FitsByteGemv(target, shape, step.decisive)) {
    return ByteGemvOf(shape, step, target);
  }
  return GemvOf(shape, step, target);
}

std::string ToText(const ProductPlan& plan) {
  return std::visit([](const auto& kernel) { return TextOf(kernel); }, plan);
}

// Block weights lose less in f16 than their quantisation lost, and f16 weights lose nothing. bf16
// and f32 do not fit f16.
bool RunsOnMatrixUnits(const Target& target, const WeightShape& shape) {
  if (!target.can.matrix_units) return false;
  if (IsBlockType(shape.dtype)) return shape.columns % kCoopTerms == 0;
  // A single row is not padded to whole steps.
  const bool fits = shape.columns % 2 == 0 && (shape.rows > 1 || !HasRaggedRows(shape));
  return shape.dtype == DType::kF16 && fits;
}

bool FitsByteGemv(const Target& target, const ProductShape& shape, int64_t decisive) {
  const bool of_experts = shape.mode == ProductMode::kShared || shape.mode == ProductMode::kSummed;
  const bool is_known = shape.dense() || (of_experts && shape.used <= target.can.subgroup_size);
  return target.can.integer_dot && is_known && decisive == 1 && IsBlockType(shape.weight.dtype) &&
         !HasRaggedRows(shape.weight) && StagedRows(target, shape) > 0;
}

}  // namespace rullama::gpu
