// Products of one row by dot products of bytes, and what any product of one row does first.
#include <algorithm>
#include <bit>
#include <cstddef>

#include "backends/gpu/matrix_product.h"

namespace rullama::gpu {
namespace {

// Chunks of weights of a lane that are under way at a time.
constexpr uint32_t kUnderWay = 2;
// Quads of the row that an invocation brings to shared memory at a time, at least.
constexpr uint64_t kLeastTurns = 2;
constexpr uint64_t kQuad = 4;

// How many lanes share a row of weights, a power of two, if a workgroup has `share` rows: by how
// many chunks lanes take one after another, those for nothing counted as well, and the end of each
// row like one more.
uint64_t LanesFor(const Tuning& tuning, uint64_t share, uint64_t columns, uint64_t threads) {
  constexpr uint64_t kChunk = 32;
  constexpr uint64_t kLeastLanes = 8;  // that read a block of 256 together
  const uint64_t chunks = columns / kChunk;
  const uint64_t most_lanes = std::min<uint64_t>(tuning.subgroups ? tuning.subgroup_size : 32, 32);
  const uint64_t least = std::bit_floor(std::clamp<uint64_t>(chunks / kUnderWay, 1, kLeastLanes));
  uint64_t best = 1, least_cost = 0;
  for (uint64_t lanes = std::min(least, most_lanes); lanes <= most_lanes; lanes *= 2) {
    const uint64_t turns = CeilDiv(share, threads / lanes);
    const uint64_t cost = turns * (CeilDiv(chunks, lanes * kUnderWay) * kUnderWay + 1);
    if (least_cost != 0 && cost >= least_cost) continue;
    least_cost = cost;
    best = lanes;
  }
  return best;
}

// Workgroups for a product: all that keep the device busy, or its share of them if others read the
// same row. Few rows for each: a subgroup without any leaves its time to the others.
uint64_t GroupsFor(const PlanBuilder& plan, uint64_t n, uint32_t x) {
  uint64_t all = n;
  if (x != RL_NO_VALUE) {
    for (const uint32_t reader : plan.ReadersOf(x)) {
      const rl_op& op = plan.graph().op(reader);
      if (reader == plan.op_index() || op.kind != plan.op().kind) continue;
      all += static_cast<uint64_t>(Last(plan.graph().value(op.results[0])));
    }
  }
  return std::clamp<uint64_t>(plan.tuning().few_groups * n / all, 1, n);
}

// As prologue.glsl reads it.
struct PrologueRecord {
  DeviceAddress x, residual, weight, scale, sum, norm_weight;
  float eps, norm_eps;
};

}  // namespace

DispatchBuilder& Place(DispatchBuilder& dispatch, const Operand& operand, bool write) {
  if (operand.scratch.bytes == 0) {
    return write ? dispatch.Write(operand.value) : dispatch.Read(operand.value);
  }
  return write ? dispatch.Write(operand.scratch) : dispatch.Read(operand.scratch);
}

void AddPrologue(DispatchBuilder& dispatch, PlanBuilder& plan, const Prologue& p) {
  constexpr float kNoNorm = -1;
  const PrologueRecord record{plan.AddressOf(p.x),
                              plan.AddressOf(p.residual),
                              plan.AddressOf(p.weight),
                              plan.AddressOf(p.scale),
                              plan.AddressOf(p.sum),
                              plan.AddressOf(p.norm_weight),
                              p.eps,
                              p.norm ? p.norm_eps : kNoNorm};
  dispatch.Align(8).Record(std::as_bytes(std::span(&record, 1)),
                           {offsetof(PrologueRecord, x), offsetof(PrologueRecord, residual),
                            offsetof(PrologueRecord, weight), offsetof(PrologueRecord, scale),
                            offsetof(PrologueRecord, sum), offsetof(PrologueRecord, norm_weight)});
  for (const uint32_t value : {p.x, p.residual, p.scale}) dispatch.Reads(value);
  dispatch.Writes(p.sum);
}

bool GoesByBytes(const PlanBuilder& plan, const Product& product) {
  // kRuns of matvec_dot.comp, and what its reductions take.
  constexpr uint64_t kOtherBytes = 2048, kBytes = 2, kScaleBytes = 8, kRun = 16, kPlaces = 256;
  const WeightShape& shape = product.weight->shape();
  const uint64_t places = CeilDiv(shape.columns, kPlaces) * kPlaces;
  const uint64_t row = places * kBytes + places / kRun * kScaleBytes;
  return plan.tuning().integer_dot && product.mode == ProductMode::kDense &&
         plan.Most(product.rows) == 1 && IsBlockType(shape.dtype) && shape.columns % 32 == 0 &&
         row + kOtherBytes <= plan.tuning().shared_bytes;
}

void RowByBytes(PlanBuilder& plan, const Product& product, const ProductOperands& operands,
                const Prologue* prologue) {
  const WeightShape& shape = product.weight->shape();
  const Tuning& tuning = plan.tuning();
  const uint32_t threads = tuning.Threads(kPrologueThreads);
  const uint64_t turns =
      std::max(kLeastTurns, prologue == nullptr ? 0 : CeilDiv(shape.columns, kQuad * threads));
  // In a step of one dispatch llvmpipe lets subgroups that leave out a loop past the barrier behind
  // it.
  const uint32_t together = tuning.software && tuning.persistent_groups > 0 ? 1 : 0;
  DispatchBuilder dispatch(
      plan, Shader::kMatVecDot,
      {threads, static_cast<uint32_t>(shape.dtype), product.up != 0 ? 2U : 1U, kUnderWay,
       static_cast<uint32_t>(turns), static_cast<uint32_t>(shape.columns), together});
  Place(dispatch, operands.x, false).Pointer(product.gate).Pointer(product.up);
  Place(dispatch, operands.extra, false);
  Place(dispatch, operands.y, true);
  if (prologue != nullptr) {
    AddPrologue(dispatch, plan, *prologue);
  } else {
    dispatch.Pointer(0);
  }
  const auto n = static_cast<uint64_t>(product.n);
  const uint64_t groups = GroupsFor(plan, n, operands.x.value);
  const uint64_t lanes = LanesFor(tuning, CeilDiv(n, groups), shape.columns, threads);
  dispatch.Rows(product.rows)
      .U32(product.n)
      .U32(static_cast<int64_t>(shape.columns))
      .U32(static_cast<int64_t>(shape.stride))
      .U32(static_cast<int64_t>(lanes))
      .U32(static_cast<int64_t>(n / groups))
      .U32(static_cast<int64_t>(n % groups))
      .Go(groups);
}

}  // namespace rullama::gpu
