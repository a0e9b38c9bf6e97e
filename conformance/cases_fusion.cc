// Cases of ops that follow each other in a layer: what a backend may compute as one when it
// generates token by token, or when it reads a prompt, and what looks like it and must not be.
#include "conformance/case.h"

namespace rullama::conformance {
namespace {

constexpr float kEps = 1e-6F;

ValueId Matrix(CaseBuilder& b, std::string_view name, DType dtype, int64_t n, int64_t k) {
  const TensorType type(dtype, {n, k});
  return IsBlockType(dtype) ? b.Weight(name, type) : b.Constant(name, type, -0.3, 0.3);
}

struct Residual {
  ValueId residual, x, weight, scale;
};
Residual ResidualOperands(CaseBuilder& b, int64_t k, bool scaled) {
  return {b.Floats("residual", F({kT, k})), b.Floats("x", F({kT, k}), -3, 3),
          b.Constant("sum.weight", F({k}), 0.5, 1.5),
          scaled ? b.Constant("scale", F({1}), 0.2, 0.9) : kNoValue};
}
ValueId ResidualSum(CaseBuilder& b, const Residual& r) {
  return b.graph().Add(
      ops::ResidualNorm{
          .residual = r.residual, .x = r.x, .weight = r.weight, .scale = r.scale, .eps = kEps},
      "sum");
}

// A norm of x whose weight is a constant `name`.weight.
ValueId Norm(CaseBuilder& b, ValueId x, int64_t k, const std::string& name) {
  const ValueId weight = b.Constant(name + ".weight", F({k}), 0.5, 1.5);
  return b.graph().Add(ops::RmsNorm{.x = x, .weight = weight, .eps = kEps}, name);
}

// Results have many columns: errors are judged by the largest of a row.
struct Pattern {
  const char* name;
  OpKind kind;
  void (*make)(CaseBuilder& b, DType dtype, int64_t k);
};

// The end of a layer and the beginning of the next: the sum continues, its norm has three readers.
void NextLayer(CaseBuilder& b, DType dtype, int64_t k) {
  GraphBuilder& g = b.graph();
  const ValueId sum = ResidualSum(b, ResidualOperands(b, k, true));
  const ValueId norm = Norm(b, sum, k, "norm");
  b.Output(g.Add(ops::Linear(norm, Matrix(b, "q.weight", dtype, 67, k)), "q"));
  b.Output(g.Add(ops::Linear(norm, Matrix(b, "k.weight", dtype, 33, k)), "k"));
  b.Output(g.Add(ops::Linear(norm, Matrix(b, "v.weight", dtype, 65, k)), "v"));
  b.Output(g.Add(ops::Affine{.x = sum, .scale = 2, .bias = 1}, "later"));
}

void Mlp(CaseBuilder& b, DType dtype, int64_t k) {
  GraphBuilder& g = b.graph();
  const ValueId sum = ResidualSum(b, ResidualOperands(b, k, false));
  const ValueId norm = g.Add(ops::RmsNorm{.x = sum, .eps = kEps}, "norm");
  const ValueId hidden =
      g.Add(ops::GeGluLinear{.x = norm,
                             .gate_weight = Matrix(b, "gate.weight", dtype, 67, k),
                             .up_weight = Matrix(b, "up.weight", dtype, 67, k)},
            "hidden");
  b.Output(hidden);
  b.Output(g.Add(ops::Affine{.x = sum, .scale = 2, .bias = 1}, "later"));
}

// A product reads the sum itself, and gates the earlier result.
void Gate(CaseBuilder& b, DType dtype, int64_t k) {
  GraphBuilder& g = b.graph();
  const ValueId up = b.Floats("up", F({kT, 67}));
  const ValueId sum = ResidualSum(b, ResidualOperands(b, k, true));
  b.Output(g.Add(
      ops::GeGlu{.gate = g.Add(ops::Linear(sum, Matrix(b, "gate.weight", dtype, 67, k)), "gate"),
                 .up = up},
      "gated"));
  b.Output(g.Add(ops::Affine{.x = sum, .scale = 2, .bias = 1}, "later"));
}

void FirstNorm(CaseBuilder& b, DType dtype, int64_t k) {
  GraphBuilder& g = b.graph();
  const ValueId x = b.Floats("x", F({kT, k}), -3, 3);
  const ValueId norm = Norm(b, x, k, "norm");
  b.Output(g.Add(ops::Linear(norm, Matrix(b, "weight", dtype, 67, k)), "y"));
}

// The norm is wanted by others too.
void NormIsShared(CaseBuilder& b, DType dtype, int64_t k) {
  GraphBuilder& g = b.graph();
  const ValueId x = b.Floats("x", F({kT, k}), -3, 3);
  const ValueId norm = Norm(b, x, k, "norm");
  b.Output(g.Add(ops::Linear(norm, Matrix(b, "weight", dtype, 67, k)), "y"));
  b.Output(g.Add(ops::Affine{.x = norm, .scale = 2, .bias = 1}, "other"));
}

// The sum is read before any product could have written it.
void SumIsReadFirst(CaseBuilder& b, DType dtype, int64_t k) {
  GraphBuilder& g = b.graph();
  const ValueId sum = ResidualSum(b, ResidualOperands(b, k, true));
  b.Output(g.Add(ops::Affine{.x = sum, .scale = 2, .bias = 1}, "earlier"));
  const ValueId norm = Norm(b, sum, k, "norm");
  b.Output(g.Add(ops::Linear(norm, Matrix(b, "weight", dtype, 67, k)), "y"));
}

// Between the sum and its norm others use memory that the norm's result may be given.
void NormComesLater(CaseBuilder& b, DType dtype, int64_t k) {
  GraphBuilder& g = b.graph();
  const ValueId sum = ResidualSum(b, ResidualOperands(b, k, true));
  const ValueId other = b.Floats("other", F({kT, k}), -3, 3);
  const ValueId between = g.Add(ops::Affine{.x = other, .scale = 2, .bias = 1}, "between");
  b.Output(g.Add(ops::Affine{.x = between, .scale = 3, .bias = 1}, "between.end"));
  const ValueId norm = Norm(b, sum, k, "norm");
  b.Output(g.Add(ops::Linear(norm, Matrix(b, "weight", dtype, 67, k)), "y"));
}

// Between the sum and its norm a product reads memory that the norm's result may be given.
void ProductComesBetween(CaseBuilder& b, DType dtype, int64_t k) {
  GraphBuilder& g = b.graph();
  const ValueId other =
      g.Add(ops::Affine{.x = b.Floats("other", F({kT, k}), -3, 3), .scale = 2, .bias = 1}, "twice");
  const ValueId sum = ResidualSum(b, ResidualOperands(b, k, true));
  const ValueId weight = Matrix(b, "weight", dtype, 67, k);
  const ValueId between = g.Add(ops::Linear(other, weight), "between");
  const ValueId norm = Norm(b, sum, k, "norm");
  b.Output(g.Add(ops::Linear(norm, weight), "y"));
  b.Output(g.Add(ops::Affine{.x = between, .scale = 2, .bias = 1}, "later"));
}

// Two norms of one sum.
void TwoNorms(CaseBuilder& b, DType dtype, int64_t k) {
  GraphBuilder& g = b.graph();
  const ValueId sum = ResidualSum(b, ResidualOperands(b, k, false));
  const ValueId a = Norm(b, sum, k, "a");
  const ValueId c = Norm(b, sum, k, "c");
  b.Output(g.Add(ops::Linear(a, Matrix(b, "first.weight", dtype, 67, k)), "first"));
  b.Output(g.Add(ops::Linear(c, Matrix(b, "second.weight", dtype, 33, k)), "second"));
}

// A mixture of experts in parallel to a dense feed-forward: the sum is normed for that, for the
// router and for the experts.
void Experts(CaseBuilder& b, DType dtype, int64_t k) {
  constexpr int64_t kCount = 9, kUsed = 3, kInner = 256;
  GraphBuilder& g = b.graph();
  const auto vector = [&](std::string_view name, int64_t n) {
    return b.Constant(name, F({n}), 0.5, 1.5);
  };
  const auto experts = [&](std::string_view name, int64_t rows, int64_t columns) {
    const TensorType type(dtype, {kCount, rows, columns});
    return IsBlockType(dtype) ? b.Weight(name, type) : b.Constant(name, type, -0.3, 0.3);
  };
  const ValueId sum = ResidualSum(b, ResidualOperands(b, k, false));
  const ValueId dense =
      g.Add(ops::RmsNorm{.x = sum, .weight = vector("dense.weight", k), .eps = kEps}, "dense.norm");
  b.Output(g.Add(ops::GeGluLinear{.x = dense,
                                  .gate_weight = Matrix(b, "gate.weight", dtype, 67, k),
                                  .up_weight = Matrix(b, "up.weight", dtype, 67, k)},
                 "dense"));
  const ValueId routed = g.Add(
      ops::RmsNorm{.x = sum, .weight = vector("router.scale", k), .eps = kEps}, "router.norm");
  const ValueId scores =
      g.Add(ops::Linear(routed, Matrix(b, "router", DType::kF32, kCount, k)), "scores");
  const auto chosen = g.Add(ops::TopK{.x = scores, .k = kUsed}, "chosen");
  const ValueId weights = g.Add(
      ops::Softmax{g.Add(ops::Affine{.x = chosen.values, .scale = 0.02F, .bias = 0}, "logits")},
      "weights");
  const ValueId x = g.Add(
      ops::RmsNorm{.x = sum, .weight = vector("experts.weight", k), .eps = kEps}, "experts.norm");
  b.Output(g.Add(ops::MoeFfn{.x = x,
                             .weights = weights,
                             .experts = chosen.indices,
                             .gate_weight = experts("gate_up", 2 * kInner, k),
                             .down_weight = experts("down", k, kInner),
                             .expert_scale = vector("factors", kCount)},
                 "experts"));
  b.Output(g.Add(ops::Affine{.x = sum, .scale = 2, .bias = 1}, "later"));
}

// x W^T + (x A^T) B^T in parts, as an adapter is without an op of its own.
ValueId AdaptedLinear(CaseBuilder& b, ValueId x, const std::string& name, const TensorType& weight,
                      int64_t rank) {
  GraphBuilder& g = b.graph();
  const int64_t n = weight.dim(0).constant, k = weight.last().constant;
  const ValueId base = g.Add(ops::Linear(x, Matrix(b, name, weight.dtype, n, k)), name + ".base");
  const ValueId inner =
      g.Add(ops::Linear(x, b.Constant(name + ".a", F({rank, k}), -0.2, 0.2)), name + ".inner");
  const ValueId change =
      g.Add(ops::Linear(inner, b.Constant(name + ".b", F({n, rank}), -0.2, 0.2)), name + ".change");
  return g.Add(ops::Sum(base, change), name + ".sum");
}

// A layer with adapters: two products that read the norm of a sum, two gated ones that read another
// norm of it, in the second of which the halves differ in rank, and one that reads the first of
// these.
void Adapted(CaseBuilder& b, DType dtype, int64_t k) {
  constexpr int64_t kHidden = 256;
  GraphBuilder& g = b.graph();
  const ValueId sum = ResidualSum(b, ResidualOperands(b, k, true));
  const ValueId norm = Norm(b, sum, k, "norm");
  b.Output(AdaptedLinear(b, norm, "q", {dtype, {67, k}}, 8));
  b.Output(AdaptedLinear(b, norm, "k", {dtype, {33, k}}, 3));
  const ValueId second = Norm(b, sum, k, "second");
  const auto gated = [&](const std::string& name, int64_t rank, int64_t up_rank) {
    const ValueId gate = AdaptedLinear(b, second, name, {dtype, {kHidden, k}}, rank);
    const ValueId up = AdaptedLinear(b, second, name + ".up", {dtype, {kHidden, k}}, up_rank);
    return g.Add(ops::GeGlu{.gate = gate, .up = up}, name + ".gated");
  };
  const ValueId hidden = gated("mlp", 11, 11);
  b.Output(gated("uneven", 8, 5));
  b.Output(AdaptedLinear(b, hidden, "down", {dtype, {65, kHidden}}, 32));
  b.Output(g.Add(ops::Affine{.x = sum, .scale = 2, .bias = 1}, "later"));
}

// Products with more rows of weights in a workgroup than it has invocations: 5,000 on a device with
// one workgroup (llvmpipe), 70,000 on an H200. The rank is not a multiple of four.
constexpr int64_t kAdaptedRows = 5000, kMostAdaptedRows = 70000;
void AdaptedManyRows(CaseBuilder& b, int64_t rows) {
  constexpr int64_t kColumns = 256, kRank = 9;
  GraphBuilder& g = b.graph();
  const ValueId x = b.Floats("x", F({kT, kColumns}));
  const TensorType weight{DType::kQ4_K, {rows, kColumns}};
  b.Output(AdaptedLinear(b, x, "down", weight, kRank));
  const ValueId gate = AdaptedLinear(b, x, "gate", weight, kRank);
  const ValueId up = AdaptedLinear(b, x, "up", weight, kRank);
  b.Output(g.Add(ops::GeGlu{.gate = gate, .up = up}, "gated"));
}

// Prompts of several tiles, with rows long enough that several workgroups share the terms of a sum;
// the rank is not a multiple of the terms that kernels add at a time, and the results fill no tile.
void AdaptedPrompt(CaseBuilder& b, DType dtype, int64_t columns) {
  constexpr int64_t kResults = 300, kRank = 19;
  GraphBuilder& g = b.graph();
  const ValueId x = b.Floats("x", F({kT, columns}));
  b.Output(AdaptedLinear(b, x, "y", {dtype, {kResults, columns}}, kRank));
  const ValueId gate = AdaptedLinear(b, x, "gate", {dtype, {kResults, columns}}, kRank);
  const ValueId up = AdaptedLinear(b, x, "up", {dtype, {kResults, columns}}, kRank);
  b.Output(g.Add(ops::GeGlu{.gate = gate, .up = up}, "gated"));
}

// Sums of products that look like adapters, but one product has a single result, which the sum adds
// to each result of the other.
void AdaptedByOne(CaseBuilder& b, DType dtype, int64_t k) {
  constexpr int64_t kRows = 67, kRank = 8;
  GraphBuilder& g = b.graph();
  const ValueId x = b.Floats("x", F({kT, k}));
  // So large that a row of sums has results to be compared with where the one result, whose errors
  // are those of all its terms, is near zero.
  const ValueId a = b.Constant("a", F({kRank, k}), -2, 2);
  const auto change = [&](const std::string& name, int64_t rows) {
    const ValueId inner = g.Add(ops::Linear(x, a), name + ".inner");
    return g.Add(ops::Linear(inner, b.Constant(name, F({rows, kRank}), -0.2, 0.2)),
                 name + ".change");
  };
  const ValueId base = g.Add(ops::Linear(x, Matrix(b, "weight", dtype, kRows, k)), "base");
  b.Output(g.Add(ops::Sum(base, change("one.b", 1)), "one.sum"));
  const ValueId one = g.Add(ops::Linear(x, Matrix(b, "one.weight", dtype, 1, k)), "one.base");
  b.Output(g.Add(ops::Sum(change("b", kRows), one), "sum"));
}

constexpr Pattern kPatterns[] = {{"next_layer", OpKind::kResidualNorm, NextLayer},
                                 {"mlp", OpKind::kGeGluLinear, Mlp},
                                 {"gate", OpKind::kGeGlu, Gate},
                                 {"first_norm", OpKind::kRmsNorm, FirstNorm},
                                 {"norm_is_shared", OpKind::kRmsNorm, NormIsShared},
                                 {"sum_is_read_first", OpKind::kResidualNorm, SumIsReadFirst},
                                 {"norm_comes_later", OpKind::kResidualNorm, NormComesLater},
                                 {"product_comes_between", OpKind::kMatMul, ProductComesBetween},
                                 {"two_norms", OpKind::kResidualNorm, TwoNorms},
                                 {"adapted", OpKind::kMatMul, Adapted},
                                 {"adapted_by_one", OpKind::kMatMul, AdaptedByOne},
                                 {"experts", OpKind::kMoeFfn, Experts}};

// Heads that are normed, turned and rounded for the cache.
// `first`: the first of the dims that turn, which are the others but for as many at the end.
Case NormedHeads(uint64_t seed, int64_t dim, bool weighted, bool half, int32_t first = 0) {
  CaseBuilder b(seed, 1);
  GraphBuilder& g = b.graph();
  const ValueId x = b.Floats("x", F({kT, 3, dim}), -3, 3);
  const ValueId pos = b.Ints("pos", I({kT}), std::vector<int32_t>{777});
  const ValueId weight = weighted ? b.Constant("weight", F({dim}), 0.5, 1.5) : kNoValue;
  const ValueId norm = g.Add(ops::RmsNorm{.x = x, .weight = weight, .eps = kEps}, "norm");
  const ValueId turned = g.Add(ops::Rope{.x = norm,
                                         .pos = pos,
                                         .theta = 1e4F,
                                         .n_rot = static_cast<int>(dim) - 2 * first,
                                         .first = first},
                               "turned");
  b.Output(half ? g.Add(ops::Cast{.x = turned, .dtype = DType::kF16}, "half") : turned);
  const ValueId v = b.Floats("v", F({kT, 2, dim}), -3, 3);
  const ValueId v_norm = g.Add(ops::RmsNorm{.x = v, .eps = kEps}, "v.norm");
  b.Output(half ? g.Add(ops::Cast{.x = v_norm, .dtype = DType::kF16}, "v.half") : v_norm);
  return std::move(b).Finish(half ? ToleranceClass::kHalf : ToleranceClass::kComposite);
}

// Attention of one row with what makes its operands, which may be left to it, and the cache that it
// reads before the row is appended.
struct Decode {
  const char* name;
  DType cache;
  int64_t heads, kv_heads, dim;
  int64_t capacity, window;
  std::vector<int32_t> past;  // of the slots; the row belongs to the last
  bool normed_k = true, normed_v = true;
  bool twice = false;  // a second attention reads the same cache
  int32_t first = 0;   // of the dims of queries and keys that turn
};

const Decode kDecodes[] = {
    {"own", DType::kF16, 8, 1, 256, 64, 0, {41}},
    {"own_f32", DType::kF32, 4, 2, 64, 64, 0, {19}},
    {"first_token", DType::kF16, 2, 1, 64, 32, 0, {0}},
    {"head_512", DType::kF16, 3, 1, 512, 96, 0, {70}},
    {"ring_wrapped", DType::kF16, 4, 2, 64, 16, 16, {1000}},
    {"slots", DType::kF16, 4, 1, 96, 48, 20, {7, 40}},
    {"shared", DType::kF16, 4, 1, 64, 64, 0, {33}, true, true, true},
    {"key_alone", DType::kF16, 4, 2, 64, 64, 0, {33}, true, false},
    {"value_alone", DType::kF32, 4, 2, 64, 64, 0, {33}, false, true},
    {"last_half", DType::kF16, 4, 2, 64, 64, 0, {33}, true, true, false, 32}};

Case DecodeCase(const Decode& d, uint64_t seed) {
  CaseBuilder b(seed, 1);
  GraphBuilder& g = b.graph();
  const auto slots = static_cast<int64_t>(d.past.size());
  const TensorType state(d.cache, {slots, d.capacity, d.kv_heads, d.dim});
  const ValueId pos = b.Ints("pos", I({kT}), std::vector<int32_t>{d.past.back()});
  const ValueId slot =
      b.Ints("slot", I({kT}), std::vector<int32_t>{static_cast<int32_t>(slots - 1)});
  const ValueId past = b.Ints("past", I({slots}), d.past);
  const ValueId k_state = b.State("k_state", state, -1, 1);
  const ValueId v_state = b.State("v_state", state, -1, 1);
  const auto cached = [&](ValueId x, const std::string& name) {
    return d.cache == DType::kF32 ? x
                                  : g.Add(ops::Cast{.x = x, .dtype = d.cache}, name + ".cached");
  };
  const auto rotated = [&](const std::string& name, int64_t heads) {
    const ValueId x = b.Floats(name + ".x", F({kT, heads, d.dim}), -3, 3);
    const ValueId weight = b.Constant(name + ".weight", F({d.dim}), 0.1, 0.3);
    const ValueId norm = g.Add(ops::RmsNorm{.x = x, .weight = weight, .eps = kEps}, name + ".norm");
    return g.Add(ops::Rope{.x = norm,
                           .pos = pos,
                           .theta = 1e4F,
                           .n_rot = static_cast<int>(d.dim / 2),
                           .first = d.first},
                 name);
  };
  const auto given = [&](const std::string& name) {
    return b.Floats(name, TensorType(d.cache, {kT, d.kv_heads, d.dim}), -1, 1);
  };
  const ValueId k = d.normed_k ? cached(rotated("k", d.kv_heads), "k") : given("k");
  const ValueId v =
      d.normed_v
          ? cached(g.Add(ops::RmsNorm{.x = b.Floats("v.x", F({kT, d.kv_heads, d.dim}), -3, 3),
                                      .eps = kEps},
                         "v"),
                   "v")
          : given("v");
  const ops::AttentionRows rows{pos, slot, pos, slot, past};
  for (int i = 0; i < (d.twice ? 2 : 1); ++i) {
    const std::string name = fmt::format("q{}", i);
    b.Output(g.Add(ops::WithRows(ops::Attention{.q = rotated(name, d.heads),
                                                .k_new = k,
                                                .v_new = v,
                                                .k_state = k_state,
                                                .v_state = v_state,
                                                .mask = RL_MASK_CAUSAL,
                                                .window = d.window,
                                                .scale = 1.0F},
                                 rows),
                   name + ".mix"));
  }
  g.Add(ops::StateAppend{.state = k_state, .rows = k, .pos = pos, .slot = slot}, "k.next");
  g.Add(ops::StateAppend{.state = v_state, .rows = v, .pos = pos, .slot = slot}, "v.next");
  return std::move(b).Finish(d.cache == DType::kF32 ? ToleranceClass::kComposite
                                                    : ToleranceClass::kHalf);
}

// The second product of an adapter, of few terms, and its sum with the product that it adapts;
// gated: a geglu of that.
Case LowRankCase(uint64_t seed, int64_t rank, int64_t rows, bool gated) {
  constexpr int64_t kColumns = 67;
  CaseBuilder b(seed, rows);
  GraphBuilder& g = b.graph();
  const ValueId x = b.Floats("x", F({kT, rank}));
  const ValueId given = b.Floats("given", F({kT, kColumns}));
  const ValueId gate = gated ? b.Floats("gate", F({kT, kColumns})) : kNoValue;
  // The memory of a value that no later op reads may become that of a result.
  const ValueId base = g.Add(ops::Affine{.x = given, .scale = 2, .bias = 1}, "base");
  const ValueId delta =
      g.Add(ops::Linear(x, Matrix(b, "weight", DType::kF32, kColumns, rank)), "delta");
  const ValueId sum = g.Add(ops::Sum(base, delta), "sum");
  b.Output(gated ? g.Add(ops::GeGlu{.gate = gate, .up = sum}, "gated") : sum);
  return std::move(b).Finish(ToleranceClass::kComposite);
}

// Terms in whole vectors and others, up to those of the largest product with a kernel of its own
// and beyond; rows that fill the blocks of that kernel and others. Plans are for
// CaseBuilder::kSpareRows more: five rows are the most that have a plan of few rows.
void AddLowRank(std::vector<CaseSpec>& cases) {
  for (const bool gated : {false, true}) {
    for (const int64_t rank : {1, 3, 4, 8, 63, 64, 65}) {
      for (const int64_t rows : {1, 5, 7, 8, 9, 17}) {
        cases.push_back({fmt::format("low_rank{}_r{}_t{}", gated ? "_geglu" : "", rank, rows),
                         OpKind::kBinary,
                         [=](uint64_t seed) { return LowRankCase(seed, rank, rows, gated); }});
      }
    }
  }
}

}  // namespace

std::vector<CaseSpec> NeighbourCases() {
  std::vector<CaseSpec> cases;
  struct Width {
    DType dtype;
    int64_t k;
    int64_t rows;
  };
  // A workgroup of 256 that keeps eight pairs each has 4,096 columns of a row in registers.
  const Width widths[] = {{DType::kF32, 96, 1},    {DType::kF32, 33, 1},    {DType::kQ4_K, 1536, 1},
                          {DType::kQ8_0, 64, 1},   {DType::kF16, 70, 40},   {DType::kQ4_K, 512, 40},
                          {DType::kQ8_0, 64, 600}, {DType::kQ8_0, 4352, 37}};
  for (const Pattern& pattern : kPatterns) {
    for (const Width& w : widths) {
      const std::string rows = w.rows == 1 ? "" : fmt::format("_t{}", w.rows);
      cases.push_back({fmt::format("{}_{}_k{}{}", pattern.name, NameOf(w.dtype), w.k, rows),
                       pattern.kind, [=](uint64_t seed) {
                         CaseBuilder b(seed, w.rows);
                         pattern.make(b, w.dtype, w.k);
                         return std::move(b).Finish(ToleranceClass::kComposite);
                       }});
    }
  }
  for (const int64_t rows : {kAdaptedRows, kMostAdaptedRows}) {
    cases.push_back({fmt::format("adapted_many_rows{}", rows == kMostAdaptedRows ? "_wide" : ""),
                     OpKind::kMatMul, [rows](uint64_t seed) {
                       CaseBuilder b(seed, 1);
                       AdaptedManyRows(b, rows);
                       return std::move(b).Finish(ToleranceClass::kComposite);
                     }});
  }
  for (const Width& w : {Width{DType::kQ4_K, 1536, 300}, Width{DType::kQ6_K, 12288, 48},
                         Width{DType::kQ8_0, 640, 130}, Width{DType::kF16, 96, 200}}) {
    cases.push_back({fmt::format("adapted_prompt_{}_k{}_t{}", NameOf(w.dtype), w.k, w.rows),
                     OpKind::kMatMul, [w](uint64_t seed) {
                       CaseBuilder b(seed, w.rows);
                       AdaptedPrompt(b, w.dtype, w.k);
                       return std::move(b).Finish(ToleranceClass::kComposite);
                     }});
  }
  for (const int64_t dim : {2, 64, 256}) {
    for (const bool half : {false, true}) {
      cases.push_back({fmt::format("heads_n{}{}", dim, half ? "_f16" : ""), OpKind::kRope,
                       [=](uint64_t seed) { return NormedHeads(seed, dim, dim != 64, half); }});
    }
  }
  for (const bool half : {false, true}) {
    cases.push_back({fmt::format("heads_middle{}", half ? "_f16" : ""), OpKind::kRope,
                     [=](uint64_t seed) { return NormedHeads(seed, 72, true, half, 7); }});
  }
  AddLowRank(cases);
  for (const Decode& decode : kDecodes) {
    cases.push_back({fmt::format("decode_{}", decode.name), OpKind::kAttention,
                     [&decode](uint64_t seed) { return DecodeCase(decode, seed); }});
  }
  return cases;
}

}  // namespace rullama::conformance
