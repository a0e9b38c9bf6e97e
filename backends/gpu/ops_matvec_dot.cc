// Products of one row by dot products of bytes, and what any product of one row does first.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

#include "backends/gpu/matrix_product.h"

namespace rullama::gpu {
namespace {

// Chunks of weights of a lane that are under way at a time.
constexpr uint32_t kUnderWay = 2;
// Quads of the row that an invocation brings to shared memory at a time, at least.
constexpr uint64_t kLeastTurns = 2;
constexpr uint64_t kQuad = 4;
constexpr uint64_t kChunk = 32;  // columns

// How many lanes share a row of weights, a power of two, if a workgroup has `share` rows: by how
// many chunks lanes take one after another, those for nothing counted as well, and the end of each
// row like one more.
uint64_t LanesFor(const Tuning& tuning, uint64_t share, uint64_t columns, uint64_t threads) {
  constexpr uint64_t kLeastLanes = 8;  // that read a block of 256 together
  const uint64_t chunks = columns / kChunk;
  const uint64_t max_lanes = std::min<uint64_t>(tuning.subgroups ? tuning.subgroup_size : 32, 32);
  const uint64_t least = std::bit_floor(std::clamp<uint64_t>(chunks / kUnderWay, 1, kLeastLanes));
  uint64_t best = 1, least_cost = 0;
  for (uint64_t lanes = std::min(least, max_lanes); lanes <= max_lanes; lanes *= 2) {
    const uint64_t turns = CeilDiv(share, threads / lanes);
    const uint64_t cost = turns * (CeilDiv(chunks, lanes * kUnderWay) * kUnderWay + 1);
    if (least_cost != 0 && cost >= least_cost) continue;
    least_cost = cost;
    best = lanes;
  }
  return best;
}

// As matvec_dot.comp reads it: a workgroup has `share` rows, the first `more` have one more.
struct Division {
  uint32_t lanes, share, more;
};
Division DivisionOf(const Tuning& tuning, const Dispatch::Shares& shares, uint64_t groups,
                    uint64_t threads) {
  const uint64_t lanes = LanesFor(tuning, CeilDiv(shares.rows, groups), shares.columns, threads);
  return {static_cast<uint32_t>(lanes), static_cast<uint32_t>(shares.rows / groups),
          static_cast<uint32_t>(shares.rows % groups)};
}

// Experts whose weights make one row.
uint64_t SideBySide(ProductMode mode, int64_t used) {
  return mode == ProductMode::kSummed ? static_cast<uint64_t>(used) : 1;
}

// Of the row that a product stages.
uint64_t ColumnsOf(const GemvShape& product) {
  return product.weight.columns * SideBySide(product.mode, product.used);
}
uint64_t ColumnsOf(const Product& product) {
  return ColumnsOf({product.mode, product.weight->shape(), product.used});
}

// What matvec_dot.comp calls kExperts.
uint32_t ExpertsOf(ProductMode mode) {
  constexpr uint32_t kStacked = 1, kSideBySide = 2;
  if (mode == ProductMode::kDense) return 0;
  return mode == ProductMode::kShared ? kStacked : kSideBySide;
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
  const PrologueRecord record{plan.addresses().AddressOf(p.x),
                              plan.addresses().AddressOf(p.residual),
                              plan.addresses().AddressOf(p.weight),
                              plan.addresses().AddressOf(p.scale),
                              plan.addresses().AddressOf(p.sum),
                              plan.addresses().AddressOf(p.norm_weight),
                              p.eps,
                              p.norm ? p.norm_eps : kNoNorm};
  dispatch.Align(8).Record(std::as_bytes(std::span(&record, 1)),
                           {offsetof(PrologueRecord, x), offsetof(PrologueRecord, residual),
                            offsetof(PrologueRecord, weight), offsetof(PrologueRecord, scale),
                            offsetof(PrologueRecord, sum), offsetof(PrologueRecord, norm_weight)});
  for (const uint32_t value : {p.x, p.residual, p.scale}) dispatch.Reads(value);
  dispatch.Writes(p.sum);
}

Dispatch::Shares SharesOf(const Product& product) {
  const bool is_stacked = product.mode == ProductMode::kShared;
  return {.rows = static_cast<uint64_t>(is_stacked ? product.n * product.used : product.n),
          .bytes = product.weight->shape().stride * SideBySide(product.mode, product.used) *
                   (product.up != 0 ? 2 : 1),
          .columns = ColumnsOf(product)};
}

void Divide(Dispatch& dispatch, const Tuning& tuning, uint64_t groups) {
  dispatch.groups[0] = static_cast<uint32_t>(groups);
  if (dispatch.shares.offset == 0) return;
  const Division division =
      DivisionOf(tuning, dispatch.shares, groups, dispatch.pipeline.constants.front());
  std::memcpy(dispatch.push.data() + dispatch.shares.offset, &division, sizeof(division));
}

bool FitsInt8Gemv(const Tuning& tuning, const GemvShape& product, int64_t max_rows) {
  // kRuns of matvec_dot.comp, and what its reductions take.
  constexpr uint64_t kOtherBytes = 2048, kBytes = 2, kScaleBytes = 8, kRun = 16, kPlaces = 256;
  const WeightShape& shape = product.weight;
  const uint64_t places = CeilDiv(ColumnsOf(product), kPlaces) * kPlaces;
  const uint64_t row = places * kBytes + places / kRun * kScaleBytes;
  const bool is_known =
      product.mode == ProductMode::kDense ||
      ((product.mode == ProductMode::kShared || product.mode == ProductMode::kSummed) &&
       product.used <= tuning.subgroup_size);
  return tuning.integer_dot && is_known && max_rows == 1 && IsBlockType(shape.dtype) &&
         shape.columns % 32 == 0 && row + kOtherBytes <= tuning.shared_bytes;
}

void EmitInt8Gemv(PlanBuilder& plan, const Product& product, const ProductOperands& operands,
                  const Prologue* prologue) {
  const WeightShape& shape = product.weight->shape();
  const Tuning& tuning = plan.tuning();
  const uint32_t threads = tuning.Threads(kPrologueThreads);
  const uint64_t columns = ColumnsOf(product);
  const uint64_t turns =
      std::max(kLeastTurns, prologue == nullptr ? 0 : CeilDiv(columns, kQuad * threads));
  // In a step of one dispatch llvmpipe lets subgroups that leave out a loop past the barrier behind
  // it.
  const uint32_t together = tuning.software && tuning.persistent_groups > 0 ? 1 : 0;
  DispatchBuilder dispatch(plan, Shader::kMatVecDot,
                           {threads, static_cast<uint32_t>(shape.dtype), product.up != 0 ? 2U : 1U,
                            kUnderWay, static_cast<uint32_t>(turns), together,
                            ExpertsOf(product.mode), static_cast<uint32_t>(columns)});
  Place(dispatch, operands.x, false).Pointer(product.gate).Pointer(product.up);
  Place(dispatch, operands.extra, false);
  Place(dispatch, operands.y, true);
  if (prologue != nullptr) {
    AddPrologue(dispatch, plan, *prologue);
  } else {
    dispatch.Pointer(0);
  }
  dispatch.Read(operands.experts);
  Place(dispatch, operands.factor, false);
  const bool is_stacked = product.mode == ProductMode::kShared;
  const Dispatch::Shares shares = SharesOf(product);
  const uint64_t groups = std::clamp<uint64_t>(tuning.few_groups, 1, shares.rows);
  const Division division = DivisionOf(tuning, shares, groups, threads);
  dispatch.Rows(product.rows)
      .U32(static_cast<int64_t>(shares.rows))
      .U32(static_cast<int64_t>(columns))
      .U32(static_cast<int64_t>(shape.stride))
      .Share(shares, true)
      .U32(division.lanes)
      .U32(division.share)
      .U32(division.more)
      .U32(product.used)
      .U32(product.expert_count)
      .U32(product.expert_rows)
      .U32(is_stacked ? product.n : static_cast<int64_t>(shape.columns / kChunk))
      .U32(plan.op_index() + 1)
      .Emit(groups);
}

}  // namespace rullama::gpu
