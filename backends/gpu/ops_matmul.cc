// matmul and geglu_linear, and the products that ops_moe.cc shares.
#include <rullama/sdk/operands.h>
#include <rullama/sdk/slots.h>

#include <bit>
#include <cmath>
#include <variant>

#include "backends/gpu/matrix_product.h"
#include "backends/gpu/op_rows.h"

namespace rullama::gpu {
namespace {

// `columns` of a matvec without a prologue: a fixed value, so that pipelines are shared.
constexpr uint32_t kAnyColumns = 4;

// Results of a row of all products that read the rows of this one. Queries, keys and values run
// side by side; products that follow one another count too, as none of the models has such. In
// graphs that learn none count: a layer that is computed again may leave some of them out, and has
// to give the same bytes.
uint64_t ResultsBeside(const PlanBuilder& plan, const Operand& x) {
  uint64_t columns = 0;
  if (plan.Learns()) return columns;
  for (const uint32_t reader : plan.ReadersOf(x)) {
    const rl_op& op = plan.graph().op(reader);
    if (!IsMatrixUnitGemm(plan.graph(), plan.target(), op)) continue;
    const auto results = static_cast<uint64_t>(Last(plan.graph().value(op.results[0])));
    columns += results * (op.kind == RL_OP_geglu_linear ? 2 : 1);
  }
  return columns;
}

// The f16 numbers whose sum stands for a value of x in a product on matrix units. One loses 2^-12
// of a value. Where a graph trains a mixture of experts there are two, because a small error may
// choose another expert.
uint32_t MatrixUnitParts(const PlanBuilder& plan) {
  return plan.target().prefers.precise_products || plan.LossDependsOnExperts() ? 2 : 1;
}

// The columns of rows in f16 with the zeros that fill the last step of the kernels for matrix
// units.
uint64_t PaddedToSteps(int64_t columns, uint32_t parts) {
  return RoundUp(static_cast<uint64_t>(columns), kCoopTerms / parts);
}

// The address of two bounds, in memory that no dispatch writes.
DeviceAddress BoundsOf(PlanBuilder& plan, float low, float high) {
  const std::array range{low, high};
  return plan.scratch().Constant(std::as_bytes(std::span(range)));
}

// Emits a product in `parts` parts of its terms by `emit`, which takes the operands, and adds the
// sums of the parts.
template <typename EmitParts>
void EmitInParts(PlanBuilder& plan, const Product& product, ProductOperands operands,
                 uint64_t parts, EmitParts emit) {
  if (parts == 1) {
    emit(operands);
    return;
  }
  const Operand y = operands.y;
  const auto results = static_cast<uint64_t>(plan.Max(product.rows) * product.n);
  const Scratch partial = plan.scratch().Take(parts * results * sizeof(float));
  operands.y = {.scratch = partial};
  emit(operands);
  AddParts(plan,
           {.sums = partial,
            .rows = product.rows,
            .n = product.n,
            .parts = parts,
            .range = product.range},
           y);
  plan.scratch().GiveBack(partial);
}

// The product of experts reads its tiles from their table.
ProductOperands WithTiles(ProductOperands operands, const Product& product,
                          const ExpertTiles& tiles) {
  if (product.mode != ProductMode::kDense) operands.extra.scratch = tiles.table;
  return operands;
}

// The arguments for the adapters of a product: ProductArgs::experts and extra.
struct AddedLowRank {
  Scratch sums;
  Operand record;
};

// Emits the sums of x with the adapters' A.
AddedLowRank EmitLowRankInner(PlanBuilder& plan, const Product& product, const HalfRows& x) {
  using Kernel = kernels::LowRankInner;
  const Epilogue& adapter = *product.adapter;
  const auto weight_of = [&](uint32_t value) -> const DeviceWeight& {
    return PlanBuilder::WeightOf(plan.graph().value(value));
  };
  const WeightShape& a = weight_of(adapter.adapter.a).shape();
  const uint32_t halves = product.up != 0 ? 2 : 1;
  const uint64_t terms = RoundUp(a.rows, uint64_t{Kernel::kTerms});
  const auto rows = static_cast<uint64_t>(plan.Max(product.rows));
  const Scratch sums = plan.scratch().Take(rows * halves * terms * sizeof(float));
  const uint32_t threads =
      std::min(plan.target().Threads(kTileThreads),
               Kernel::kMostSubgroups * static_cast<uint32_t>(plan.target().can.subgroup_size));
  DispatchBuilder(plan, Kernel{.threads = threads},
                  {.x = x.rows,
                   .factors = x.factors,
                   .a = plan.addresses().AddressOf(adapter.adapter.a),
                   .a2 = plan.addresses().AddressOf(adapter.up_adapter.a),
                   .y = sums,
                   .rows = product.rows,
                   .halves = halves,
                   .k = a.columns,
                   .padded = x.columns,
                   .stride = a.stride,
                   .rank = a.rows,
                   .terms = terms})
      .Emit(CeilDiv(rows, uint64_t{Kernel::kRows}), halves * terms / Kernel::kTerms);
  const kernels::LowRankLayout record{
      .b = plan.addresses().AddressOf(adapter.adapter.b),
      .b2 = plan.addresses().AddressOf(adapter.up_adapter.b),
      .terms = static_cast<uint32_t>(terms),
      .stride = static_cast<uint32_t>(weight_of(adapter.adapter.b).shape().stride)};
  const auto bytes = std::as_bytes(std::span(&record, 1));
  return {sums, {.scratch = {plan.scratch().Constant(bytes), bytes.size()}}};
}

// A product on matrix units by `kernel`. `how`: CoopGemm or WarpgroupGemm.
template <typename Kernel, typename Gemm>
void EmitHalfGemm(PlanBuilder& plan, const Product& product, ProductOperands operands,
                  const Kernel& kernel, const Gemm& how) {
  const HalfRows half =
      HalfOf(plan, product, operands.x, static_cast<int64_t>(product.weight->shape().columns),
             MatrixUnitParts(plan));
  operands.x.scratch = half.rows;
  operands.factor.scratch = half.factors;
  AddedLowRank added{};
  if (product.adapter != nullptr) added = EmitLowRankInner(plan, product, half);
  EmitInParts(plan, product, operands, how.parts, [&](const ProductOperands& part) {
    kernels::ProductArgs args = ProductArgsOf(plan, product, part, half.columns);
    if (how.parts == 1) args.range = product.range;
    if (product.adapter != nullptr) {
      args.experts = added.sums;
      args.extra = added.record;
    }
    DispatchBuilder(plan, kernel, args).Emit(how.grid.x, how.grid.y, how.grid.z);
  });
  if (product.adapter != nullptr) plan.scratch().GiveBack(added.sums);
}

void EmitCoopGemm(PlanBuilder& plan, const Product& product, const ProductOperands& operands,
                  const CoopGemm& how) {
  const CoopTile& tile = how.tile;
  EmitHalfGemm(plan, product, operands,
               kernels::MatMulCoop{.threads = tile.threads(),
                                   .type = product.weight->shape().dtype,
                                   .glu = product.up != 0,
                                   .mode = product.mode,
                                   .tile = tile.rows,
                                   .columns = tile.columns,
                                   .subgroup_rows = tile.subgroup_rows,
                                   .subgroup_columns = tile.subgroup_columns,
                                   .parts = MatrixUnitParts(plan),
                                   .adapted = product.adapter != nullptr},
               how);
}

void EmitWarpgroupGemm(PlanBuilder& plan, const Product& product, const ProductOperands& operands,
                       const WarpgroupGemm& how) {
  EmitHalfGemm(plan, product, operands,
               kernels::MatMulWarpgroup{.threads = how.threads(),
                                        .type = product.weight->shape().dtype,
                                        .glu = product.up != 0,
                                        .mode = product.mode,
                                        .tile = how.tile.rows,
                                        .columns = how.tile.columns,
                                        .adapted = product.adapter != nullptr},
               how);
}

void EmitTiledGemm(PlanBuilder& plan, const Product& product, const ProductOperands& operands,
                   const TiledGemm& how) {
  constexpr uint32_t kRowThreads = 4;  // invocations for each row of a tile (kernels.def)
  const WeightShape& shape = product.weight->shape();
  EmitInParts(plan, product, operands, how.parts, [&](const ProductOperands& part) {
    DispatchBuilder(plan,
                    kernels::MatMul{.threads = kRowThreads * how.tile_rows,
                                    .type = shape.dtype,
                                    .glu = product.up != 0,
                                    .mode = product.mode,
                                    .checked = HasRaggedRows(shape),
                                    .tile = how.tile_rows},
                    ProductArgsOf(plan, product, part, shape.columns))
        .Emit(how.grid.x, how.grid.y, how.grid.z);
  });
}

void EmitGemv(PlanBuilder& plan, const Product& product, const ProductOperands& operands,
              const Gemv& how, const Prologue* prologue) {
  const WeightShape& shape = product.weight->shape();
  const bool staged = prologue != nullptr;
  DispatchBuilder dispatch(
      plan,
      kernels::MatVec{.threads = how.threads,
                      .type = shape.dtype,
                      .lanes = how.lanes,
                      .nr = how.nr,
                      .nt = how.nt,
                      .glu = product.up != 0       ? 1
                             : product.up_is_given ? 2
                                                   : 0,
                      .mode = product.mode,
                      .checked = HasRaggedRows(shape),
                      .unroll = how.unroll,
                      .staged = staged,
                      .columns = staged ? static_cast<uint32_t>(shape.columns) : kAnyColumns},
      ProductArgsOf(plan, product, operands, shape.columns, prologue));
  if (how.shares) dispatch.Share(SharesOf(product));
  dispatch.Emit(how.grid.x, how.grid.y);
}

void EmitNarrow(PlanBuilder& plan, const Product& product, const ProductOperands& operands,
                const NarrowProduct& how, const Prologue* prologue) {
  const WeightShape& shape = product.weight->shape();
  DispatchBuilder(plan,
                  kernels::NarrowProduct{.threads = how.threads,
                                         .staged = prologue != nullptr,
                                         .columns = static_cast<uint32_t>(shape.columns)},
                  {.x = operands.x,
                   .weight = product.gate,
                   .y = operands.y,
                   .rows = product.rows,
                   .n = product.n,
                   .stride = shape.stride,
                   .prologue = PrologueRecord(prologue)})
      .Emit(how.grid.x, how.grid.y);
}

// A prologue belongs to the product that reads its row: the only one, or the first of experts.
const Prologue* PrologueOf(const PlanBuilder& plan, const Product& product, bool may_take_bytes) {
  const bool first = product.mode == ProductMode::kShared && may_take_bytes;
  return product.mode == ProductMode::kDense || first ? plan.prologue() : nullptr;
}

// A tile of matmul_plain.
struct PlainTile {
  uint32_t rows, columns;  // 16, 32 or 64 of each
  uint32_t depth;          // terms of a step
  // A block of 4 x 4 results for each.
  [[nodiscard]] uint32_t threads() const {
    constexpr uint32_t kResults = 16, kFewest = 32;
    return std::max(rows * columns / kResults, kFewest);
  }
};

// As large as the results allow: those of an adapter are often as few as its rank. With many terms
// each visit of memory brings a whole line.
PlainTile PlainTileOf(const Target& target, int64_t rows, uint64_t columns, uint64_t terms) {
  constexpr uint64_t kSmall = 16, kLarge = 64, kLargeInSoftware = 32;
  const uint64_t most = target.can.is_cpu ? kLargeInSoftware : kLarge;
  const auto side = [&](uint64_t results) {
    return static_cast<uint32_t>(std::clamp(std::bit_ceil(results), kSmall, most));
  };
  const bool deep = terms > kSmall && !target.can.is_cpu;
  return {side(static_cast<uint64_t>(std::max<int64_t>(rows, 1))),
          side(std::max<uint64_t>(columns, 1)), static_cast<uint32_t>(deep ? 2 * kSmall : kSmall)};
}

// Whether matmul_plain may load and store four neighbours in memory as a vector: rows of both
// matrices and of the results are whole numbers of vectors.
bool HasVectors(const kernels::MatMulPlainArgs& args) {
  const auto whole = [](uint64_t count) { return count % 4 == 0; };
  const auto whole_dim = [&](const rl_dim& dim) {
    return dim.t == 0 && dim.r == 0 && whole(static_cast<uint64_t>(dim.constant));
  };
  const bool a = args.a_term.word() == 1 ? whole(args.a_row.word()) && whole_dim(args.terms.dim())
                                         : whole(args.a_term.word()) && whole_dim(args.rows.dim());
  const bool b = args.b_term.word() == 1
                     ? whole(args.b_column.word()) && whole_dim(args.terms.dim())
                     : whole(args.b_term.word());
  return a && b && whole(args.columns.word());
}

// Each piece of the weights gives some columns of the result.
void EmitByPieces(PlanBuilder& plan, Product product, ProductOperands operands,
                  const DeviceWeight* up) {
  const std::vector<DeviceWeight::Piece>& pieces = product.weight->pieces();
  const Operand y = operands.y;
  const int64_t columns = product.n;
  for (size_t i = 0; i < pieces.size(); ++i) {
    product.gate = pieces[i].address;
    product.up = up == nullptr ? 0 : up->pieces()[i].address;
    product.n = static_cast<int64_t>(pieces[i].rows.count);
    const auto rows = static_cast<uint64_t>(plan.Max(product.rows));
    const Scratch part = plan.scratch().Take(rows * pieces[i].rows.count * sizeof(float));
    operands.y = {.scratch = part};
    EmitChosen(plan, product, operands);
    CopyColumns(plan, {.rows = product.rows,
                       .columns = product.n,
                       .from = operands.y,
                       .from_columns = product.n,
                       .to = y,
                       .to_columns = columns,
                       .to_first = static_cast<int64_t>(pieces[i].rows.first)});
    plan.scratch().GiveBack(part);
  }
}

// y = x gate^T, or with `up` the gated product of both.
void Linear(PlanBuilder& plan, uint32_t x, uint32_t gate, uint32_t up) {
  Product product = DenseProduct(plan, gate, plan.Result().dims[0]);
  ProductOperands operands;
  operands.x.value = x;
  operands.y.value = plan.StoredIndex();
  if (product.weight->pieces().size() > 1) {
    EmitByPieces(plan, product, operands,
                 up == RL_NO_VALUE ? nullptr : &PlanBuilder::WeightOf(plan.graph().value(up)));
    return;
  }
  product.up = plan.addresses().AddressOf(up);
  const Epilogue& epilogue = plan.node().epilogue;
  if (epilogue.kind == EpilogueKind::kGate) {
    product.up_is_given = true;
    operands.extra.value = epilogue.up;
  } else if (epilogue.kind == EpilogueKind::kAdapter) {
    product.up = plan.addresses().AddressOf(epilogue.up);
    product.adapter = &epilogue;
  } else if (epilogue.kind == EpilogueKind::kClamp) {
    product.range = BoundsOf(plan, epilogue.low, epilogue.high);
  }
  EmitChosen(plan, product, operands);
}

// A weight that is not a constant has no layout for products.
void MatMulPlain(PlanBuilder& plan, bool transposed) {
  const rl_value& weight = plan.Input(operands::MatMul::weight);
  const int64_t rows = weight.dims[0].constant, columns = weight.dims[1].constant;
  const int64_t terms = transposed ? columns : rows;
  EmitMatMulPlain(plan, {.a = plan.InputIndex(operands::MatMul::x),
                         .b = plan.InputIndex(operands::MatMul::weight),
                         .y = plan.ResultIndex(),
                         .rows = plan.Result().dims[0],
                         .terms = rl_dim{terms, 0, 0},
                         .columns = transposed ? rows : columns,
                         .a_row = terms,
                         .a_term = 1,
                         .b_term = transposed ? 1 : columns,
                         .b_column = transposed ? columns : 1,
                         .factor = 1});
}

// Where the result lies in the memory of x, which no later op reads, x moves away first.
Operand ApartFrom(PlanBuilder& plan, uint32_t y, uint32_t x, const rl_dim& rows, int64_t columns) {
  if (!plan.RangeOf({.value = y}).Overlaps(plan.RangeOf({.value = x}))) return {.value = x};
  const auto bytes = static_cast<uint64_t>(plan.Max(rows) * columns) * sizeof(float);
  const Operand copy{.scratch = plan.scratch().Take(bytes)};
  CopyColumns(plan, {.rows = rows,
                     .columns = columns,
                     .from = {.value = x},
                     .from_columns = columns,
                     .to = copy,
                     .to_columns = columns});
  return copy;
}

// y = base + x W^T with few terms, or gelu(gate) times that.
void LowRankSum(PlanBuilder& plan) {
  using Kernel = kernels::LowRankSum;
  const DeviceWeight& weight = PlanBuilder::WeightOf(plan.Input(operands::MatMul::weight));
  const WeightShape& shape = weight.shape();
  const rl_dim rows = plan.Result().dims[0];
  const Operand x = ApartFrom(plan, plan.StoredIndex(), plan.InputIndex(operands::MatMul::x), rows,
                              static_cast<int64_t>(shape.columns));
  const uint64_t blocks = CeilDiv(static_cast<uint64_t>(plan.Max(rows)), uint64_t{Kernel::kRows});
  DispatchBuilder(plan, Kernel{.threads = kTileThreads},
                  {.x = x,
                   .weight = weight.address(),
                   .base = plan.node().epilogue.base,
                   .gate = plan.node().epilogue.gate,
                   .y = plan.StoredIndex(),
                   .rows = rows,
                   .n = shape.rows,
                   .terms = shape.columns,
                   .stride = shape.stride})
      .Emit(CeilDiv(blocks * shape.rows, kTileThreads));
  if (x.value == RL_NO_VALUE) plan.scratch().GiveBack(x.scratch);
}

void MatMul(PlanBuilder& plan) {
  if (plan.node().epilogue.kind == EpilogueKind::kBase) {
    LowRankSum(plan);
    return;
  }
  const bool transposed = plan.attrs<rl_matmul_attrs>().transpose_weight != 0;
  if (plan.Input(operands::MatMul::weight).lifetime != RL_LIFETIME_CONSTANT) {
    MatMulPlain(plan, transposed);
    return;
  }
  const uint32_t x = plan.InputIndex(operands::MatMul::x);
  const uint32_t weight = plan.InputIndex(operands::MatMul::weight);
  if (transposed) {
    Linear(plan, x, weight, RL_NO_VALUE);
    return;
  }
  Product product = DenseProduct(plan, weight, plan.Result().dims[0]);
  product.n = Last(plan.Result());
  ProductOperands operands;
  operands.x.value = x;
  operands.y.value = plan.ResultIndex();
  EmitStored(plan, product, operands);
}

std::string RefuseMatMul(const sdk::GraphView& graph, const rl_op& op, const DeviceLimits& limits) {
  const rl_value& weight = *graph.input(op, operands::MatMul::weight);
  if (weight.lifetime != RL_LIFETIME_CONSTANT && weight.dtype == RL_DTYPE_F32) {
    return RefuseShapes(graph, op, limits);
  }
  return RefuseWeights(graph, op, limits, /*reads_pieces=*/true);
}

void GeGluLinear(PlanBuilder& plan) {
  using operands::GeGluLinear;
  Linear(plan, plan.InputIndex(GeGluLinear::x), plan.InputIndex(GeGluLinear::gate_weight),
         plan.InputIndex(GeGluLinear::up_weight));
}

std::string RefuseGeGluLinear(const sdk::GraphView& graph, const rl_op& op,
                              const DeviceLimits& limits) {
  using operands::GeGluLinear;
  std::string reason = RefuseGated(graph, op, GeGluLinear::gate_weight, GeGluLinear::up_weight);
  return reason.empty() ? RefuseWeights(graph, op, limits, true) : reason;
}

}  // namespace

ProductShape ShapeOf(const Product& product) {
  return {.mode = product.mode,
          .weight = product.weight->shape(),
          .n = product.n,
          .used = product.used,
          .gated = product.up != 0,
          .gates = product.up_is_given,
          .adapted = product.adapter != nullptr};
}

kernels::ProductArgs ProductArgsOf(const PlanBuilder& plan, const Product& p,
                                   const ProductOperands& o, uint64_t terms,
                                   const Prologue* prologue) {
  const WeightShape& shape = p.weight->shape();
  return {.x = o.x,
          .weight = p.gate,
          .weight2 = p.up,
          .experts = o.experts,
          .extra = o.extra,
          .factor = o.factor,
          .y = o.y,
          .rows = p.rows,
          .n = p.n,
          .k = terms,
          .stride = shape.stride,
          .blocks = shape.blocks,
          .used = p.used,
          .count = p.expert_count,
          .expert_rows = p.expert_rows,
          .op = plan.op_index() + 1,
          .prologue = PrologueRecord(prologue)};
}

HalfRows EmitToHalf(PlanBuilder& plan, const Operand& x, const HalfShape& shape) {
  constexpr uint32_t kThreads = 256, kFewThreads = 64;  // few for rows as short as heads
  constexpr int64_t kShort = 128;
  constexpr uint64_t kHalfBytes = 2;
  const DimArgument all(shape.rows, shape.times);
  const auto rows = static_cast<uint64_t>(plan.Max(all.dim()));
  const RowSplit split =
      SplitRows(plan, all.dim(), shape.columns, shape.columns <= kShort ? kFewThreads : kThreads);
  const HalfRows half{.rows = plan.scratch().Take(rows * shape.parts * shape.padded * kHalfBytes),
                      .factors = plan.scratch().Take(rows * sizeof(float)),
                      .parts = shape.parts,
                      .columns = shape.padded};
  DispatchBuilder(plan,
                  kernels::ToHalf{.threads = split.threads,
                                  .norms = shape.norms != nullptr,
                                  .parts = shape.parts,
                                  .narrow = split.narrow},
                  {.x = x,
                   .up = shape.up,
                   .range = shape.range,
                   .y = half.rows,
                   .factors = half.factors,
                   .whole = shape.whole,
                   .rows = all,
                   .columns = shape.columns,
                   .padded = shape.padded,
                   .prologue = PrologueRecord(shape.norms)})
      .Emit(split.groups);
  return half;
}

HalfRows HalfOf(PlanBuilder& plan, const Product& product, const Operand& x, int64_t columns,
                uint32_t parts) {
  const Range source = plan.RangeOf(x);
  if (const HalfRows* half = plan.dispatches().FindHalf(source, parts)) return *half;
  const HalfRows half = EmitToHalf(plan, x,
                                   {.rows = product.rows,
                                    .times = product.mode == ProductMode::kPairs ? product.used : 1,
                                    .columns = columns,
                                    .padded = PaddedToSteps(columns, parts),
                                    .parts = parts});
  plan.dispatches().KeepHalf(source, half, plan.LastProductOf(x));
  return half;
}

const rl_value* WeightOfLinear(const sdk::GraphView& graph, const rl_op& op) {
  const bool is_product =
      op.kind == RL_OP_geglu_linear ||
      (op.kind == RL_OP_matmul && sdk::GraphView::attrs<rl_matmul_attrs>(op).transpose_weight != 0);
  if (!is_product) return nullptr;
  const uint32_t operand = op.kind == RL_OP_matmul ? uint32_t{operands::MatMul::weight}
                                                   : uint32_t{operands::GeGluLinear::gate_weight};
  const rl_value* weight = graph.input(op, operand);
  return weight->lifetime == RL_LIFETIME_CONSTANT ? weight : nullptr;
}

bool IsMatrixUnitGemm(const sdk::GraphView& graph, const Target& target, const rl_op& op) {
  const rl_value* weight = WeightOfLinear(graph, op);
  if (weight == nullptr) return false;
  const WeightShape shape = ShapeOfConstant(*weight);
  return RunsOnMatrixUnits(target, shape) &&
         PiecesOf(shape, target.can.max_piece_bytes).size() == 1 &&
         StepsOf(graph, target).DecisiveRows(graph.value(op.results[0])) > sdk::kFewRows;
}

bool AreMatrixUnitExperts(const sdk::GraphView& graph, const Target& target, const rl_op& op) {
  using operands::MoeFfn;
  const auto fits = [&](uint32_t weight) {
    return RunsOnMatrixUnits(target, ShapeOfConstant(graph.value(op.inputs[weight])));
  };
  return fits(MoeFfn::gate_weight) && fits(MoeFfn::down_weight) &&
         StepsOf(graph, target).DecisiveRows(graph.value(op.inputs[MoeFfn::experts])) >
             sdk::kFewRows;
}

void EmitHalfRows(PlanBuilder& plan, const HalfSource& source) {
  const HalfCopy& copy = plan.node().half;
  const rl_value& y = plan.Result();
  const Operand result{.value = copy.value};
  const uint32_t parts = MatrixUnitParts(plan);
  HalfShape shape{.rows = y.dims[0],
                  .columns = Last(y),
                  .padded = PaddedToSteps(Last(y), parts),
                  .parts = parts,
                  .up = source.up,
                  .norms = source.norms};
  if (std::isfinite(source.low) || std::isfinite(source.high)) {
    shape.range = BoundsOf(plan, source.low, source.high);
  }
  const bool is_sum = source.norms != nullptr && copy.value == source.norms->sum;
  if (source.norms != nullptr && !copy.only && !is_sum) shape.whole = copy.value;
  const HalfRows half = EmitToHalf(plan, {.value = source.x}, shape);
  plan.dispatches().KeepHalf(plan.RangeOf(result), half, plan.LastProductOf(result));
}

void AddParts(PlanBuilder& plan, const PartialSums& partial, const Operand& y, bool adds) {
  const auto elements = static_cast<uint64_t>(plan.Max(partial.rows) * partial.n);
  DispatchBuilder(plan, kernels::SumParts{.threads = kTileThreads},
                  {.x = partial.sums,
                   .addend = adds ? BufferArgument(y) : RL_NO_VALUE,
                   .range = partial.range,
                   .y = y,
                   .rows = partial.rows,
                   .n = partial.n,
                   .parts = partial.parts})
      .Emit(CeilDiv(elements, kTileThreads));
}

Product DenseProduct(const PlanBuilder& plan, uint32_t weight, const rl_dim& rows) {
  Product product;
  product.weight = &PlanBuilder::WeightOf(plan.graph().value(weight));
  product.gate = product.weight->address();
  product.rows = rows;
  product.n = static_cast<int64_t>(product.weight->shape().rows);
  return product;
}

void EmitProduct(PlanBuilder& plan, const Product& product, const ProductOperands& operands) {
  if (product.weight->pieces().size() > 1) {
    EmitByPieces(plan, product, operands, nullptr);
  } else {
    EmitChosen(plan, product, operands);
  }
}

std::string RefuseGated(const sdk::GraphView& graph, const rl_op& op, uint32_t gate, uint32_t up) {
  const rl_value* second = graph.input(op, up);
  if (second == nullptr || second->dtype == graph.input(op, gate)->dtype) return {};
  return "gate and up have different types";
}

void EmitMatMulPlain(PlanBuilder& plan, kernels::MatMulPlainArgs args, bool adds) {
  const rl_dim rows = args.rows.dim();
  const uint64_t columns = args.columns.word();
  const auto terms = static_cast<uint64_t>(plan.Max(args.terms.dim()));
  const PlainTile tile = PlainTileOf(plan.target(), plan.Decisive(rows), columns, terms);
  const auto tiles_of = [&](int64_t count) {
    return CeilDiv(static_cast<uint64_t>(count), tile.rows) * CeilDiv(columns, tile.columns);
  };
  const uint64_t parts =
      PartsOfSums(plan.target(), tiles_of(plan.Decisive(rows)), terms, kF32PartTerms);
  const Operand y = args.y.operand();
  const uint64_t bytes = static_cast<uint64_t>(plan.Max(rows)) * columns * sizeof(float);
  if (parts > 1) args.y = plan.scratch().Take(parts * bytes);
  DispatchBuilder(plan,
                  kernels::MatMulPlain{.threads = plan.target().Threads(tile.threads()),
                                       .adds = adds && parts == 1,
                                       .tile_rows = tile.rows,
                                       .tile_columns = tile.columns,
                                       .depth = tile.depth,
                                       .by_term_a = args.a_term.word() == 1,
                                       .by_term_b = args.b_term.word() == 1,
                                       .vectors = HasVectors(args)},
                  args)
      .Emit(tiles_of(plan.Max(rows)), parts);
  if (parts == 1) return;
  const Scratch partial = args.y.operand().scratch;
  AddParts(plan,
           {.sums = partial, .rows = rows, .n = static_cast<int64_t>(columns), .parts = parts}, y,
           adds);
  plan.scratch().GiveBack(partial);
}

void EmitChosen(PlanBuilder& plan, const Product& product, const ProductOperands& operands,
                const ExpertStep& experts) {
  const bool dense = product.mode == ProductMode::kDense;
  const bool may_take_bytes = dense || experts.may_take_bytes;
  const Prologue* prologue = PrologueOf(plan, product, may_take_bytes);
  const ProductShape shape = ShapeOf(product);
  ProductStep step{.rows = plan.Max(product.rows),
                   .decisive = plan.Decisive(product.rows),
                   .has_prologue = prologue != nullptr,
                   .may_take_bytes = may_take_bytes,
                   .half_parts = MatrixUnitParts(plan),
                   .experts = experts.tiles.tiling};
  if (MultipliesTiles(shape, step) && RunsOnMatrixUnits(plan.target(), shape.weight)) {
    step.results_beside = ResultsBeside(plan, operands.x);
  }
  struct Emission {
    void operator()(const ByteGemv& how) const {
      EmitByteGemv(plan, product, operands, how, prologue);
    }
    void operator()(const Gemv& how) const { EmitGemv(plan, product, operands, how, prologue); }
    void operator()(const NarrowProduct& how) const {
      EmitNarrow(plan, product, operands, how, prologue);
    }
    void operator()(const TiledGemm& how) const {
      EmitTiledGemm(plan, product, WithTiles(operands, product, tiles), how);
    }
    void operator()(const CoopGemm& how) const {
      EmitCoopGemm(plan, product, WithTiles(operands, product, tiles), how);
    }
    void operator()(const WarpgroupGemm& how) const {
      EmitWarpgroupGemm(plan, product, WithTiles(operands, product, tiles), how);
    }
    PlanBuilder& plan;
    const Product& product;
    const ProductOperands& operands;
    const Prologue* prologue;
    const ExpertTiles& tiles;
  };
  const ProductPlan chosen = ChooseProduct(shape, step, plan.target());
  const bool adds = std::holds_alternative<ByteGemv>(chosen) ||
                    std::holds_alternative<CoopGemm>(chosen) ||
                    std::holds_alternative<WarpgroupGemm>(chosen);
  if (shape.adapted && !adds) {
    throw sdk::Error(RL_INTERNAL, "an adapter was fused into a product whose kernel has none");
  }
  std::visit(Emission{plan, product, operands, prologue, experts.tiles}, chosen);
}

const OpRow rows::kMatMul = {RL_OP_matmul, RefuseMatMul, MatMul};
const OpRow rows::kGeGluLinear = {RL_OP_geglu_linear, RefuseGeGluLinear, GeGluLinear};

}  // namespace rullama::gpu
