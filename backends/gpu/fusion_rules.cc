#include "backends/gpu/fusion_rules.h"

#include <rullama/sdk/operands.h>
#include <rullama/sdk/slots.h>

#include <algorithm>

#include "backends/gpu/attention.h"
#include "backends/gpu/matrix_product.h"

namespace rullama::gpu {
namespace {

using sdk::GraphView;

constexpr uint32_t kNorm = RL_OP_rms_norm, kResidual = RL_OP_residual_norm, kRope = RL_OP_rope;

void SetNorm(Prologue& prologue, const rl_op& norm) {
  prologue.norm = true;
  prologue.norm_weight = OperandIndex(norm, operands::RmsNorm::weight);
  prologue.norm_eps = GraphView::attrs<rl_rms_norm_attrs>(norm).eps;
}

// ---- norms of one row, computed by the GEMVs that read them -------------------------------------
// A separate norm takes one workgroup a few microseconds while all others wait at a barrier, so
// each workgroup of the GEMV normalises the row itself. The sum of a residual norm has other
// readers too: the first GEMV stores it.

bool StagesRows(const Target& target) { return target.prefers.max_prologue > 0; }

// Whether a value is one row that a GEMV may stage in shared memory.
bool IsShortRow(const Fusion& fusion, uint32_t value) {
  constexpr int64_t kTerms = 32;  // elements a lane reads at once
  const rl_value& row = fusion.value(value);
  return fusion.steps().DecisiveRows(row) <= 1 && RowElements(row) == Last(row) &&
         Last(row) % kTerms == 0 && Last(row) <= fusion.target().prefers.max_prologue;
}

// Whether an op is a GEMV with a prologue if it has one row.
bool IsGemv(const Fusion& fusion, const rl_op& op) {
  return WeightOfLinear(fusion.graph(), op) != nullptr;
}

// Whether the kernel of such an op applies norms to its row.
bool AppliesNorms(const Fusion& fusion, const rl_op& op) {
  const rl_value* weight = WeightOfLinear(fusion.graph(), op);
  if (weight == nullptr) return false;
  const Target& target = fusion.target();
  return !target.can.norms_by_bytes ||
         FitsByteGemv(target, {.weight = ShapeOfConstant(*weight)},
                      fusion.steps().DecisiveRows(fusion.value(op.results[0])));
}

bool OnlyGemvsRead(const Fusion& fusion, uint32_t value) {
  const std::vector<uint32_t>& readers = fusion.uses().ReadersOf(value);
  return !readers.empty() && std::ranges::all_of(readers, [&](uint32_t reader) {
    const rl_op& op = OpOf(fusion, reader);
    // A fused reader is a product of a node that another reader makes.
    const bool applies = fusion.IsFused(reader) || AppliesNorms(fusion, op);
    return applies && op.inputs[0] == value;
  });
}

// Gives the norm `op` to all its readers.
void GiveToReaders(Fusion& fusion, uint32_t op) {
  const rl_op& norm = OpOf(fusion, op);
  Prologue prologue;
  prologue.x = norm.inputs[operands::RmsNorm::x];
  SetNorm(prologue, norm);
  for (const uint32_t reader : fusion.uses().ReadersOf(norm.results[0])) {
    fusion.node(reader).prologue = prologue;
    fusion.FuseInto(reader, op);
  }
}

bool NormIntoGemvs(Fusion& fusion, uint32_t op, uint32_t /*reader*/) {
  const uint32_t result = OpOf(fusion, op).results[0];
  if (!IsShortRow(fusion, result) || !OnlyGemvsRead(fusion, result)) return false;
  GiveToReaders(fusion, op);
  return true;
}

// The first product of the experts waits for the router, by which time the norm's operands have
// been stored.
bool NormIntoExperts(Fusion& fusion, uint32_t op, uint32_t /*reader*/) {
  const uint32_t result = OpOf(fusion, op).results[0];
  const bool fits =
      IsShortRow(fusion, result) &&
      std::ranges::all_of(fusion.uses().ReadersOf(result), [&](uint32_t reader) {
        return ExpertsFitByteGemv(fusion.target(), fusion.graph(), OpOf(fusion, reader));
      });
  if (fits) GiveToReaders(fusion, op);
  return fits;
}

// The norms of `sum` that only GEMVs read.
std::vector<uint32_t> NormsOf(const Fusion& fusion, uint32_t sum) {
  std::vector<uint32_t> norms;
  for (const uint32_t reader : fusion.uses().ReadersOf(sum)) {
    const rl_op& op = OpOf(fusion, reader);
    if (op.kind == RL_OP_rms_norm && op.inputs[0] == sum &&
        IsPrivate(fusion.value(op.results[0])) && OnlyGemvsRead(fusion, op.results[0])) {
      norms.push_back(reader);
    }
  }
  return norms;
}

// Whether all readers of `sum` other than `norms` come after `product`, which stores it.
bool OthersComeLater(const Fusion& fusion, uint32_t sum, const std::vector<uint32_t>& norms,
                     uint32_t product) {
  return std::ranges::all_of(fusion.uses().ReadersOf(sum), [&](uint32_t reader) {
    return reader >= product || std::ranges::find(norms, reader) != norms.end();
  });
}

// Gives a residual norm to the first GEMV that reads the sum, or to all that read norms of it.
bool ResidualNormIntoGemvs(Fusion& fusion, uint32_t op, uint32_t /*reader*/) {
  const rl_op& residual_norm = OpOf(fusion, op);
  const uint32_t sum = residual_norm.results[0];
  if (!IsShortRow(fusion, sum)) return false;
  Prologue prologue;
  prologue.x = residual_norm.inputs[operands::ResidualNorm::x];
  prologue.residual = residual_norm.inputs[operands::ResidualNorm::residual];
  prologue.weight = OperandIndex(residual_norm, operands::ResidualNorm::weight);
  prologue.scale = OperandIndex(residual_norm, operands::ResidualNorm::scale);
  prologue.eps = GraphView::attrs<rl_residual_norm_attrs>(residual_norm).eps;
  prologue.sum = sum;
  const std::vector<uint32_t> norms = NormsOf(fusion, sum);
  if (norms.empty()) {
    const uint32_t first = fusion.uses().ReadersOf(sum).front();
    const rl_op& reader = OpOf(fusion, first);
    if (!AppliesNorms(fusion, reader) || reader.inputs[0] != sum) return false;
    fusion.node(first).prologue = prologue;
    fusion.FuseInto(first, op);
    fusion.StoreIn(first, sum);
    return true;
  }
  uint32_t first = RL_NO_OP;
  for (const uint32_t norm : norms) {
    first = std::min(first, fusion.uses().ReadersOf(OpOf(fusion, norm).results[0]).front());
  }
  if (!OthersComeLater(fusion, sum, norms, first)) return false;
  for (const uint32_t norm : norms) {
    SetNorm(prologue, OpOf(fusion, norm));
    for (const uint32_t reader : fusion.uses().ReadersOf(OpOf(fusion, norm).results[0])) {
      prologue.sum = reader == first ? sum : RL_NO_VALUE;
      fusion.node(reader).prologue = prologue;
      fusion.FuseInto(reader, op);
      fusion.FuseInto(reader, norm);
    }
  }
  fusion.StoreIn(first, sum);
  return true;
}

// ---- heads --------------------------------------------------------------------------------------

// A rotation reads each head anyway, so it normalises it too.
bool NormIntoRope(Fusion& fusion, uint32_t op, uint32_t reader) {
  const rl_op& norm = OpOf(fusion, op);
  Prologue prologue;
  prologue.x = norm.inputs[operands::RmsNorm::x];
  SetNorm(prologue, norm);
  fusion.node(reader).prologue = prologue;
  fusion.FuseInto(reader, op);
  return true;
}

// Whether the memory of a value is still intact when a later op reads it.
bool Stays(const Fusion& fusion, uint32_t value) {
  const uint32_t producer = fusion.uses().ProducerOf(value);
  if (producer == RL_NO_OP) return true;
  if (!IsPrivate(fusion.value(value))) return false;
  const rl_op& op = OpOf(fusion, producer);
  return op.kind != RL_OP_reshape || Stays(fusion, op.inputs[operands::Reshape::x]);
}

bool SameRows(const rl_value& a, const rl_value& b) {
  return a.dims[0].constant == b.dims[0].constant && a.dims[0].t == b.dims[0].t &&
         a.dims[0].r == b.dims[0].r;
}

bool SameShape(const rl_value& a, const rl_value& b) {
  return a.rank == b.rank && SameRows(a, b) && RowElements(a) == RowElements(b) &&
         Last(a) == Last(b);
}

// Whether attention with one query row may transform the heads that it reads as `value`.
bool TransformsHeads(const Fusion& fusion, const rl_op& attention, uint32_t value) {
  using operands::Attention;
  const auto times = std::count(attention.inputs, attention.inputs + attention.input_count, value);
  if (times != 1 || !HasPlainCache(fusion.graph(), attention)) return false;
  if (attention.inputs[Attention::q] == value) return fusion.OnlyReader(value) != RL_NO_OP;
  if (attention.inputs[Attention::k_new] != value && attention.inputs[Attention::v_new] != value) {
    return false;
  }
  // Another row of the step may read the keys and values of this one.
  if (fusion.steps().kind == StepKind::kRowByRow) return false;
  // A step that wants no query runs no attention, but may still need the keys and values.
  const rl_value& fresh = fusion.value(value);
  return SameRows(fusion.value(attention.inputs[Attention::q]), fresh) &&
         attention.inputs[Attention::k_state] != RL_NO_VALUE &&
         fresh.dtype == fusion.value(attention.inputs[Attention::k_state]).dtype;
}

// Attention with one query row transforms its queries, which saves a level of small dispatches. If
// it is the first reader of the new key or value, it transforms that too and stores it for later
// readers.
bool HeadsIntoAttention(Fusion& fusion, uint32_t op, uint32_t reader) {
  const rl_op& last = OpOf(fusion, op);
  const bool rotates = last.kind == RL_OP_rope;
  if (rotates && GraphView::attrs<rl_rope_attrs>(last).first != 0) return false;
  const std::optional<Prologue>& norm = fusion.node(op).prologue;
  HeadTransform heads;
  heads.x = norm ? norm->x : last.inputs[0];
  if (norm) {
    heads.norm = true;
    heads.norm_weight = norm->norm_weight;
    heads.norm_eps = norm->norm_eps;
  } else if (!rotates) {
    heads.norm = true;
    heads.norm_weight = OperandIndex(last, operands::RmsNorm::weight);
    heads.norm_eps = GraphView::attrs<rl_rms_norm_attrs>(last).eps;
  }
  if (rotates) heads.rope = op;
  const rl_op& attention = OpOf(fusion, reader);
  if (!Stays(fusion, heads.x) || !IsOneRow(fusion.graph(), fusion.target(), attention)) {
    return false;
  }
  const uint32_t cast = fusion.HalfCastOf(last.results[0]);
  const uint32_t value = cast == RL_NO_OP ? last.results[0] : OpOf(fusion, cast).results[0];
  if (!TransformsHeads(fusion, attention, value)) return false;
  const uint32_t* end = attention.inputs + attention.input_count;
  heads.operand = static_cast<uint32_t>(std::find(attention.inputs, end, value) - attention.inputs);
  fusion.node(reader).heads.push_back(heads);
  fusion.FuseInto(reader, op);
  if (cast != RL_NO_OP) fusion.FuseInto(reader, cast);
  fusion.StoreIn(reader, value);
  return true;
}

// ---- epilogues ----------------------------------------------------------------------------------

void SetEpilogue(Fusion& fusion, uint32_t op, uint32_t reader, Epilogue epilogue) {
  epilogue.result = OpOf(fusion, reader).results[0];
  fusion.node(op).epilogue = epilogue;
  fusion.FuseInto(op, reader);
  fusion.StoreIn(op, epilogue.result);
}

bool CastAfter(Fusion& fusion, uint32_t op, uint32_t reader) {
  if (TypeOf(fusion.value(OpOf(fusion, reader).results[0])) != DType::kF16) return false;
  SetEpilogue(fusion, op, reader, {.kind = EpilogueKind::kCastF16});
  return true;
}

// A norm that reads the sum of a residual norm.
bool NormAfterResidual(Fusion& fusion, uint32_t op, uint32_t reader) {
  const rl_op& norm = OpOf(fusion, reader);
  const uint32_t weight = OperandIndex(norm, operands::RmsNorm::weight);
  if (!fusion.IsStoredBefore(weight, op)) return false;
  SetEpilogue(fusion, op, reader,
              {.kind = EpilogueKind::kNorm,
               .norm_weight = weight,
               .norm_eps = GraphView::attrs<rl_rms_norm_attrs>(norm).eps});
  return true;
}

// The geglu after `up`, if that and nothing else reads it, and no product wants its rows in f16.
// Shared memory could give the geglu's result a part of the base, which is read for the last time
// before the geglu.
uint32_t GeGluAfterUp(const Fusion& fusion, uint32_t up) {
  const uint32_t result = OpOf(fusion, up).results[0];
  const std::vector<uint32_t>& readers = fusion.uses().ReadersOf(result);
  if (!fusion.steps().LeaveTransientsUnaliased() || !IsPrivate(fusion.value(result)) ||
      readers != std::vector{up + 1} ||
      fusion.steps().DecisiveRows(fusion.value(result)) > sdk::kFewRows) {
    return RL_NO_OP;
  }
  const rl_op& gated = OpOf(fusion, up + 1);
  const bool fits = gated.kind == RL_OP_geglu && gated.inputs[operands::GeGlu::up] == result &&
                    fusion.IsStoredBefore(gated.inputs[operands::GeGlu::gate], up);
  return fits ? up + 1 : RL_NO_OP;
}

// The second product of an adapter, of as many terms as its rank, adds itself to the product that
// it adapts.
bool BaseAfterLowRank(Fusion& fusion, uint32_t op, uint32_t reader) {
  constexpr uint64_t kMostTerms = 64;  // with more a product for many terms is faster
  const rl_op& product = OpOf(fusion, op);
  const rl_op& sum = OpOf(fusion, reader);
  const uint32_t result = product.results[0];
  if (reader != op + 1 || GraphView::attrs<rl_binary_attrs>(sum).fn != RL_BINARY_ADD ||
      !IsGemv(fusion, product) || !IsPrivate(fusion.value(result)) ||
      fusion.uses().ReadersOf(result).size() != 1) {
    return false;
  }
  const WeightShape shape = ShapeOfConstant(fusion.value(product.inputs[operands::MatMul::weight]));
  const bool first = sum.inputs[operands::Binary::a] == result;
  const uint32_t base = sum.inputs[first ? operands::Binary::b : operands::Binary::a];
  if (shape.dtype != DType::kF32 || shape.columns > kMostTerms ||
      PiecesOf(shape, fusion.target().can.max_piece_bytes).size() > 1 ||
      !SameShape(fusion.value(base), fusion.value(result)) || !fusion.IsStoredBefore(base, op)) {
    return false;
  }
  Epilogue epilogue{.kind = EpilogueKind::kBase, .base = base};
  if (const uint32_t gated = GeGluAfterUp(fusion, reader); gated != RL_NO_OP) {
    epilogue.gate = OpOf(fusion, gated).inputs[operands::GeGlu::gate];
    fusion.FuseInto(op, reader);
    reader = gated;
  }
  SetEpilogue(fusion, op, reader, epilogue);
  return true;
}

// The adapters of up store the result of the geglu.
bool GeGluAfterAdapters(Fusion& fusion, uint32_t op, uint32_t reader) {
  if (GeGluAfterUp(fusion, op) != reader) return false;
  SetEpilogue(fusion, op, reader,
              {.kind = EpilogueKind::kBase,
               .base = OpOf(fusion, op).inputs[operands::AdapterSum::base],
               .gate = OpOf(fusion, reader).inputs[operands::GeGlu::gate]});
  return true;
}

// A product that is only the gate of a geglu computes that op's result.
bool GateAfterProduct(Fusion& fusion, uint32_t op, uint32_t reader) {
  if (fusion.node(op).epilogue.kind != EpilogueKind::kNone) return false;
  const rl_op& product = OpOf(fusion, op);
  const uint32_t up = OpOf(fusion, reader).inputs[operands::GeGlu::up];
  // A weight in pieces gives its columns to several dispatches, which are copied together.
  const WeightShape shape = ShapeOfConstant(fusion.value(product.inputs[operands::MatMul::weight]));
  if (!IsGemv(fusion, product) || !fusion.IsStoredBefore(up, op) ||
      fusion.steps().DecisiveRows(fusion.value(product.results[0])) > sdk::kFewRows ||
      PiecesOf(shape, fusion.target().can.max_piece_bytes).size() > 1) {
    return false;
  }
  SetEpilogue(fusion, op, reader, {.kind = EpilogueKind::kGate, .up = up});
  return true;
}

// The end of a router: the softmax, possibly of scaled values, is computed with the top-k.
bool SoftmaxAfterTopK(Fusion& fusion, uint32_t op, uint32_t reader) {
  if (Last(fusion.value(OpOf(fusion, op).inputs[0])) > kernels::TopKFew::kMaxColumns) return false;
  Epilogue epilogue{.kind = EpilogueKind::kSoftmax};
  if (OpOf(fusion, reader).kind == RL_OP_affine) {
    const rl_op& affine = OpOf(fusion, reader);
    const auto& a = GraphView::attrs<rl_affine_attrs>(affine);
    const uint32_t softmax = fusion.OnlyReader(affine.results[0]);
    // A factor above zero keeps the first value the largest.
    if (a.bias != 0 || !(a.scale > 0) || softmax == RL_NO_OP ||
        OpOf(fusion, softmax).kind != RL_OP_softmax) {
      return false;
    }
    epilogue.factor = a.scale;
    fusion.FuseInto(op, reader);
    reader = softmax;
  }
  SetEpilogue(fusion, op, reader, epilogue);
  return true;
}

void SetClamp(Fusion& fusion, uint32_t op, uint32_t clamp) {
  const auto& bounds = GraphView::attrs<rl_clamp_attrs>(OpOf(fusion, clamp));
  SetEpilogue(fusion, op, clamp,
              {.kind = EpilogueKind::kClamp, .low = bounds.lo, .high = bounds.hi});
}

// Towers clamp the operands and results of products. A product on matrix units converts its operand
// to f16 first, so the clamp's result may lie in the operand's memory. No other op runs between
// product and clamp, so no other op can still read that memory.
bool ClampAfterProduct(Fusion& fusion, uint32_t op, uint32_t reader) {
  if (reader != op + 1 || !IsMatrixUnitGemm(fusion.graph(), fusion.target(), OpOf(fusion, op))) {
    return false;
  }
  SetClamp(fusion, op, reader);
  return true;
}

// The readers of a value that are products on matrix units and read it as rows of f16.
struct HalfReaders {
  bool any = false;  // whether there are some
  bool only = true;  // whether no other op and no host reads the value
};
HalfReaders HalfReadersOf(const Fusion& fusion, uint32_t value) {
  HalfReaders found{.only = IsPrivate(fusion.value(value))};
  for (const uint32_t reader : fusion.uses().ReadersOf(value)) {
    const rl_op& op = OpOf(fusion, reader);
    const bool on_units = op.kind == RL_OP_moe_ffn
                              ? AreMatrixUnitExperts(fusion.graph(), fusion.target(), op)
                              : IsMatrixUnitGemm(fusion.graph(), fusion.target(), op);
    // The A of an adapter, part of another product's node by now, reads the rows of that product.
    const bool of_adapter = op.kind == RL_OP_matmul && fusion.IsFused(reader);
    const auto times = std::count(op.inputs, op.inputs + op.input_count, value);
    const bool reads_once = op.inputs[0] == value && times == 1;
    found.any = found.any || (on_units && reads_once);
    found.only = found.only && (on_units || of_adapter) && reads_once;
  }
  return found;
}

bool OnlyMatrixUnitsRead(const Fusion& fusion, uint32_t value) {
  const HalfReaders readers = HalfReadersOf(fusion, value);
  return readers.any && readers.only;
}

bool ClampBeforeProducts(Fusion& fusion, uint32_t op, uint32_t /*reader*/) {
  const uint32_t result = OpOf(fusion, op).results[0];
  if (!OnlyMatrixUnitsRead(fusion, result)) return false;
  fusion.node(op).half = {.value = result, .only = true};
  return true;
}

// The rows of f16 count as copies of the clamp's result until that memory is written, so nothing
// else may run between the two ops.
bool GeGluBeforeProducts(Fusion& fusion, uint32_t op, uint32_t reader) {
  const uint32_t gated = OpOf(fusion, op).results[0];
  const bool clamped = OpOf(fusion, reader).kind == RL_OP_clamp;
  if (clamped && (reader != op + 1 || fusion.OnlyReader(gated) != reader)) return false;
  const uint32_t result = clamped ? OpOf(fusion, reader).results[0] : gated;
  if (!OnlyMatrixUnitsRead(fusion, result)) return false;
  if (clamped) SetClamp(fusion, op, reader);
  fusion.node(op).half = {.value = result, .only = true};
  return true;
}

// ---- norms before products on matrix units ------------------------------------------------------
// Such a product reads f16 rows, which the norm stores itself instead of a dispatch between them.
// Not in graphs that learn: norms that are computed again have other readers, and their bytes have
// to be the same.

bool NormBeforeProducts(Fusion& fusion, uint32_t op, uint32_t /*reader*/) {
  const uint32_t result = OpOf(fusion, op).results[0];
  const HalfReaders readers = HalfReadersOf(fusion, result);
  if (!readers.any || fusion.learns()) return false;
  fusion.node(op).half = {.value = result, .only = readers.only};
  return true;
}

// Whether something after `op` reads `value` or a reshape of it.
bool Outlives(const Fusion& fusion, uint32_t value, uint32_t op) {
  return std::ranges::any_of(fusion.uses().ReadersOf(value), [&](uint32_t reader) {
    return reader > op || (OpOf(fusion, reader).kind == RL_OP_reshape &&
                           Outlives(fusion, OpOf(fusion, reader).results[0], op));
  });
}

// Whether the f16 rows of a norm's result may be stored with the residual norm `op` before it. They
// count as copies of the memory that the result will have, until that is written. So no op between
// the two may write there, and none may be a product, which might read another value there.
bool KeepsPlaceOf(const Fusion& fusion, uint32_t norm, uint32_t op) {
  for (uint32_t between = op + 1; between < norm; ++between) {
    const rl_op& other = OpOf(fusion, between);
    if (IsProduct(other.kind)) return false;
    for (uint32_t i = 0; i < other.result_count; ++i) {
      if (!Outlives(fusion, other.results[i], norm)) return false;
    }
  }
  return true;
}

// Stores the rows of the norm that follows if only products on matrix units read it, else those of
// the sum.
bool ResidualNormBeforeProducts(Fusion& fusion, uint32_t op, uint32_t reader) {
  if (fusion.learns()) return false;
  const uint32_t sum = OpOf(fusion, op).results[0];
  if (OpOf(fusion, reader).kind == kNorm) {
    const uint32_t result = OpOf(fusion, reader).results[0];
    if (OnlyMatrixUnitsRead(fusion, result) && KeepsPlaceOf(fusion, reader, op) &&
        NormAfterResidual(fusion, op, reader)) {
      fusion.node(op).half = {.value = result, .only = true};
      return true;
    }
  }
  if (!HalfReadersOf(fusion, sum).any) return false;
  fusion.node(op).half = {.value = sum};
  return true;
}

bool Always(const Target& /*target*/) { return true; }
bool HasMatrixUnits(const Target& target) { return target.can.matrix_units; }
bool StoresHalfNorms(const Target& target) { return target.can.half_norms; }
bool HasRowAttention(const Target& target) {
  return target.can.subgroups && target.can.row_attention;
}

constexpr Rule kRules[] = {
    {"norm into rotation", kNorm, {kRope}, Readers::kOne, StepKind::kFewRows, Always, NormIntoRope},
    {"norm into GEMVs",
     kNorm,
     {RL_OP_matmul, RL_OP_geglu_linear},
     Readers::kAll,
     StepKind::kRowByRow,
     StagesRows,
     NormIntoGemvs},
    {"norm into experts",
     kNorm,
     {RL_OP_moe_ffn},
     Readers::kAll,
     StepKind::kRowByRow,
     StagesRows,
     NormIntoExperts},
    {"norm into attention",
     kNorm,
     {RL_OP_attention},
     Readers::kFirst,
     StepKind::kRowByRow,
     HasRowAttention,
     HeadsIntoAttention},
    {"cast after norm", kNorm, {RL_OP_cast}, Readers::kOne, StepKind::kFewRows, Always, CastAfter},
    {"rotation into attention",
     kRope,
     {RL_OP_attention},
     Readers::kFirst,
     StepKind::kRowByRow,
     HasRowAttention,
     HeadsIntoAttention},
    {"cast after rotation",
     kRope,
     {RL_OP_cast},
     Readers::kOne,
     StepKind::kFewRows,
     Always,
     CastAfter},
    {"norm before products",
     kNorm,
     {RL_OP_matmul, RL_OP_geglu_linear, RL_OP_moe_ffn},
     Readers::kSome,
     StepKind::kManyRows,
     StoresHalfNorms,
     NormBeforeProducts},
    {"residual norm into GEMVs",
     kResidual,
     {kNorm, RL_OP_matmul, RL_OP_geglu_linear},
     Readers::kSome,
     StepKind::kRowByRow,
     StagesRows,
     ResidualNormIntoGemvs},
    {"residual norm before products",
     kResidual,
     {kNorm, RL_OP_matmul, RL_OP_geglu_linear},
     Readers::kSome,
     StepKind::kManyRows,
     StoresHalfNorms,
     ResidualNormBeforeProducts},
    {"norm after residual norm",
     kResidual,
     {kNorm},
     Readers::kSome,
     StepKind::kFewRows,
     Always,
     NormAfterResidual},
    {"base after low-rank product",
     RL_OP_matmul,
     {RL_OP_binary},
     Readers::kFirst,
     StepKind::kManyRows,
     Always,
     BaseAfterLowRank},
    {"geglu after adapters",
     RL_OP_adapter_sum,
     {RL_OP_geglu},
     Readers::kFirst,
     StepKind::kFewRows,
     Always,
     GeGluAfterAdapters},
    {"gate after product",
     RL_OP_matmul,
     {RL_OP_geglu},
     Readers::kOne,
     StepKind::kFewRows,
     Always,
     GateAfterProduct},
    {"clamp after product",
     RL_OP_matmul,
     {RL_OP_clamp},
     Readers::kOne,
     StepKind::kManyRows,
     HasMatrixUnits,
     ClampAfterProduct},
    {"clamp before products",
     RL_OP_clamp,
     {RL_OP_matmul, RL_OP_geglu_linear},
     Readers::kAll,
     StepKind::kManyRows,
     HasMatrixUnits,
     ClampBeforeProducts},
    {"geglu before products",
     RL_OP_geglu,
     {RL_OP_clamp, RL_OP_matmul, RL_OP_geglu_linear},
     Readers::kAll,
     StepKind::kManyRows,
     HasMatrixUnits,
     GeGluBeforeProducts},
    {"softmax after top-k",
     RL_OP_topk,
     {RL_OP_softmax, RL_OP_affine},
     Readers::kOne,
     StepKind::kFewRows,
     Always,
     SoftmaxAfterTopK},
};

}  // namespace

std::span<const Rule> FusionRules() { return kRules; }

}  // namespace rullama::gpu
