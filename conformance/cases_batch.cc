// Cases of steps that decode for many slots at once: one row for each slot, with the caches of all
// of them. Every output has one entry for each row.
#include <algorithm>
#include <cmath>

#include "conformance/case.h"

namespace rullama::conformance {
namespace {

constexpr float kBatchEps = 1e-6F;
constexpr int64_t kBatchWidth = 768;  // of rows; a whole number of blocks of every weight type

// Positions, slots and past of a step in which row i continues slot i. Past is up to `most`, 0 of
// the first slot and `most` of the last.
ops::AttentionRows AddStepRows(CaseBuilder& b, int64_t most) {
  const int64_t slots = b.extents().t;
  std::vector<int32_t> past, slot;
  for (int32_t i = 0; i < slots; ++i) {
    slot.push_back(i);
    past.push_back(static_cast<int32_t>(b.random().Int(0, most)));
  }
  past.front() = 0;
  past.back() = static_cast<int32_t>(most);
  const ValueId pos = b.Ints("pos", I({kT}), past);
  const ValueId own = b.Ints("slot", I({kT}), slot);
  return {pos, own, pos, own, b.Ints("past", I({slots}), past)};
}

struct BatchHeads {
  const char* name;
  KvTypes cache;
  int64_t heads, kv_heads, dim, capacity, window;
  int64_t max_past;
};

ValueId AddBatchAttention(CaseBuilder& b, const BatchHeads& s, ValueId q, ValueId k, ValueId v,
                          const ops::AttentionRows& rows) {
  const auto state = [&](DType dtype) {
    return TensorType(dtype, {b.extents().t, s.capacity, s.kv_heads, s.dim});
  };
  const double size = 3 / std::sqrt(static_cast<double>(s.dim));
  return b.graph().Add(
      ops::WithRows(ops::Attention{.q = q,
                                   .k_new = k,
                                   .v_new = v,
                                   .k_state = b.State("k_state", state(s.cache.keys), -size, size),
                                   .v_state = b.State("v_state", state(s.cache.values)),
                                   .mask = RL_MASK_CAUSAL,
                                   .window = s.window,
                                   .scale = 0.7F},
                    rows),
      "mix");
}

ops::AttentionRows AddCaches(CaseBuilder& b, const BatchHeads& s) {
  const ops::AttentionRows rows = AddStepRows(b, s.max_past);
  const auto fresh = [&](DType dtype) { return TensorType(dtype, {kT, s.kv_heads, s.dim}); };
  const ValueId q = b.Floats("q", F({kT, s.heads, s.dim}), -3, 3);
  const ValueId k = b.Floats("k_new", fresh(s.cache.keys), -0.3, 0.3);
  const ValueId v = b.Floats("v_new", fresh(s.cache.values));
  b.Output(AddBatchAttention(b, s, q, k, v, rows));
  return rows;
}

// Small caches, for cases about other ops: a plan learns from them how many slots there are.
constexpr BatchHeads kSmallCaches{"small", DType::kF16, 2, 1, 64, 32, 0, 31};

// Rings that have wrapped, keys enough to be split, and caches of all types.
constexpr BatchHeads kBatchHeads[] = {
    {"f16", DType::kF16, 4, 1, 64, 64, 0, 63},
    {"f32", DType::kF32, 2, 2, 256, 32, 0, 31},
    {"ring", DType::kF16, 4, 2, 64, 16, 16, 1000},
    {"head_512", DType::kF16, 3, 1, 512, 96, 0, 95},
    {"long", DType::kF16, 8, 2, 128, 700, 0, 699},
    {"long_window", DType::kF16, 8, 1, 256, 300, 300, 2000},
    {"bf16", DType::kBF16, 4, 2, 128, 48, 0, 47},
    {"q8_0_ring", DType::kQ8_0, 4, 2, 64, 16, 16, 1000},
    {"q8_0_long", DType::kQ8_0, 8, 1, 512, 400, 0, 399},
    {"q8_0_q4_0", {DType::kQ8_0, DType::kQ4_0}, 8, 2, 256, 96, 0, 95},
    {"q4_0_long", DType::kQ4_0, 8, 2, 128, 700, 0, 699}};

using BatchPattern = void (*)(CaseBuilder& b, DType dtype);

// Whole groups of weight rows, which backends may rearrange, and others.
void BatchProducts(CaseBuilder& b, DType dtype) {
  AddCaches(b, kSmallCaches);
  const ValueId x = b.Floats("x", F({kT, kBatchWidth}), -1, 1);
  for (const int64_t n : {96, 67}) {
    const TensorType type(dtype, {n, kBatchWidth});
    const std::string suffix = std::to_string(n);
    const ValueId weight = b.Weight("weight" + suffix, type);
    b.Output(b.graph().Add(ops::Linear(x, weight), "product" + suffix));
    b.Output(b.graph().Add(ops::GeGluLinear{.x = x,
                                            .gate_weight = b.Weight("gate" + suffix, type),
                                            .up_weight = b.Weight("up" + suffix, type)},
                           "gated" + suffix));
  }
}

struct BatchWeights {
  const char* name;
  int64_t n, k;
  DType dtype;
  bool gated = true;  // gated products as well
};

// Rows of x of which no shared memory has room for all columns, so that a kernel takes these in
// slices; and enough rows of weights for several tiles in each workgroup of a large GPU.
constexpr BatchWeights kWideWeights[] = {{"k12544", 64, 12544, DType::kQ4_K},
                                         {"k12544", 64, 12544, DType::kQ6_K},
                                         {"k12544", 64, 12544, DType::kQ8_0},
                                         {"k18432", 64, 18432, DType::kQ4_K},
                                         {"k18432", 64, 18432, DType::kQ6_K},
                                         {"k18432", 64, 18432, DType::kQ8_0},
                                         {"n10000_k8448", 10000, 8448, DType::kQ4_K, false},
                                         {"n40000", 40000, kBatchWidth, DType::kQ4_K}};

void BatchWideProducts(CaseBuilder& b, const BatchWeights& w) {
  AddCaches(b, kSmallCaches);
  const ValueId x = b.Floats("x", F({kT, w.k}), -1, 1);
  const TensorType type(w.dtype, {w.n, w.k});
  b.Output(b.graph().Add(ops::Linear(x, b.Weight("weight", type)), "product"));
  if (!w.gated) return;
  b.Output(b.graph().Add(
      ops::GeGluLinear{
          .x = x, .gate_weight = b.Weight("gate", type), .up_weight = b.Weight("up", type)},
      "gated"));
}

void BatchAdapted(CaseBuilder& b, DType dtype) {
  AddCaches(b, kSmallCaches);
  const ValueId x = b.Floats("x", F({kT, kBatchWidth}), -1, 1);
  for (const int64_t n : {96, 67}) {
    const auto weight = [&](const char* name) {
      return b.Weight(name + std::to_string(n), {dtype, {n, kBatchWidth}});
    };
    const auto adapter_a = [&](const char* name) {
      return b.Constant(name + std::to_string(n), F({n / 12, kBatchWidth}), -0.2, 0.2);
    };
    const auto adapter_b = [&](const char* name) {
      return b.Constant(name + std::to_string(n), F({n, n / 12}), -0.2, 0.2);
    };
    b.Output(b.graph().Add(ops::AdaptedLinear{.x = x,
                                              .weight = weight("weight"),
                                              .a = adapter_a("weight.a"),
                                              .b = adapter_b("weight.b")},
                           "product" + std::to_string(n)));
    b.Output(b.graph().Add(ops::AdaptedGeGluLinear{.x = x,
                                                   .gate_weight = weight("gate"),
                                                   .gate_a = adapter_a("gate.a"),
                                                   .gate_b = adapter_b("gate.b"),
                                                   .up_weight = weight("up"),
                                                   .up_a = adapter_a("up.a"),
                                                   .up_b = adapter_b("up.b")},
                           "gated" + std::to_string(n)));
  }
}

// Adapters of rows, and stacks of them for weights [n, kBatchWidth]. Some rows have none.
class BatchAdapters {
 public:
  explicit BatchAdapters(CaseBuilder& b) : b_(b), x_(b.Floats("x", F({kT, kBatchWidth}), -1, 1)) {
    constexpr int64_t kPlaces = 2;
    std::vector<int32_t> ids;
    std::vector<double> factors;
    for (int64_t i = 0; i < b.extents().t * kPlaces; ++i) {
      ids.push_back(static_cast<int32_t>(b.random().Int(0, kCount - 1)));
      factors.push_back(static_cast<double>(b.random().Int(-1, 2)));
    }
    ids_ = b.Ints("ids", I({kT, kPlaces}), ids);
    factors_ = b.Floats("factors", F({kT, kPlaces}), factors);
  }

  [[nodiscard]] ValueId x() const { return x_; }
  [[nodiscard]] ValueId ids() const { return ids_; }
  [[nodiscard]] ValueId factors() const { return factors_; }
  ValueId A(const std::string& name, int64_t n) const {
    return b_.Constant(name + ".a" + std::to_string(n), F({kCount, n / 12, kBatchWidth}), -0.2,
                       0.2);
  }
  ValueId B(const std::string& name, int64_t n) const {
    return b_.Constant(name + ".b" + std::to_string(n), F({kCount, n, n / 12}), -0.2, 0.2);
  }
  // `base` and what the adapters of `name` add.
  ValueId Sum(ValueId base, const std::string& name, int64_t n) const {
    return b_.graph().Add(ops::AdapterSum{.x = x_,
                                          .base = base,
                                          .a = A(name, n),
                                          .b = B(name, n),
                                          .ids = ids_,
                                          .factors = factors_},
                          name + ".sum" + std::to_string(n));
  }

 private:
  static constexpr int64_t kCount = 3;

  CaseBuilder& b_;
  ValueId x_, ids_, factors_;
};

void BatchRowAdapted(CaseBuilder& b, DType dtype) {
  AddCaches(b, kSmallCaches);
  const BatchAdapters rows(b);
  for (const int64_t n : {96, 67}) {
    const auto weight = [&](const char* name) {
      return b.Weight(name + std::to_string(n), {dtype, {n, kBatchWidth}});
    };
    const ValueId product = b.graph().Add(ops::RowAdaptedLinear{.x = rows.x(),
                                                                .weight = weight("weight"),
                                                                .a = rows.A("weight", n),
                                                                .b = rows.B("weight", n),
                                                                .ids = rows.ids(),
                                                                .factors = rows.factors()},
                                          "product" + std::to_string(n));
    b.Output(rows.Sum(product, "second", n));
    b.Output(b.graph().Add(ops::RowAdaptedGeGluLinear{.x = rows.x(),
                                                      .gate_weight = weight("gate"),
                                                      .gate_a = rows.A("gate", n),
                                                      .gate_b = rows.B("gate", n),
                                                      .up_weight = weight("up"),
                                                      .up_a = rows.A("up", n),
                                                      .up_b = rows.B("up", n),
                                                      .ids = rows.ids(),
                                                      .factors = rows.factors()},
                           "gated" + std::to_string(n)));
  }
}

// The parts of the same layers.
void BatchAdapterSums(CaseBuilder& b, DType dtype) {
  AddCaches(b, kSmallCaches);
  const BatchAdapters rows(b);
  for (const int64_t n : {96, 67}) {
    const auto half = [&](const std::string& name) {
      const ValueId weight = b.Weight(name + std::to_string(n), {dtype, {n, kBatchWidth}});
      const ValueId base =
          b.graph().Add(ops::Linear(rows.x(), weight), name + ".base" + std::to_string(n));
      return rows.Sum(base, name, n);
    };
    b.Output(rows.Sum(half("weight"), "second", n));
    const ValueId gate = half("gate");
    b.Output(
        b.graph().Add(ops::GeGlu{.gate = gate, .up = half("up")}, "gated" + std::to_string(n)));
  }
}

// One expert that all rows choose, and two of their own for each.
void BatchExperts(CaseBuilder& b, DType dtype) {
  constexpr int64_t kCount = 6, kUsed = 3, kInner = 256;
  AddCaches(b, kSmallCaches);
  std::vector<int32_t> chosen;
  for (int64_t row = 0; row < b.extents().t; ++row) {
    const auto first = static_cast<int32_t>(b.random().Int(1, 3));
    for (const int32_t expert : {0, first, first + 2}) chosen.push_back(expert);
  }
  const ValueId experts = b.Ints("experts", I({kT, kUsed}), chosen);
  const ValueId x = b.Floats("x", F({kT, kBatchWidth}), -0.3, 0.3);
  b.Output(b.graph().Add(
      ops::MoeFfn{.x = x,
                  .weights = b.Floats("weights", F({kT, kUsed}), 0, 1),
                  .experts = experts,
                  .gate_weight = b.Weight("gate_up", {dtype, {kCount, 2 * kInner, kBatchWidth}}),
                  .down_weight = b.Weight("down", {dtype, {kCount, kBatchWidth, kInner}})},
      "mixture"));
  b.Output(b.graph().Add(
      ops::GroupedMatMul{.x = x,
                         .weight = b.Weight("weight", {dtype, {kCount, 67, kBatchWidth}}),
                         .experts = experts},
      "grouped"));
}

// A layer as models have it, followed by the best token of each wanted row.
void BatchLayer(CaseBuilder& b, DType dtype) {
  constexpr BatchHeads kOwn{"layer", DType::kF16, 4, 2, 64, 160, 0, 159};
  GraphBuilder& g = b.graph();
  const ops::AttentionRows rows = AddStepRows(b, kOwn.max_past);
  const auto vector = [&](const std::string& name, int64_t n) {
    return b.Constant(name, F({n}), 0.5, 1.5);
  };
  const auto linear = [&](ValueId input, const std::string& name, int64_t n, int64_t k) {
    return g.Add(ops::Linear(input, b.Weight(name + ".weight", {dtype, {n, k}})), name);
  };
  const auto norm = [&](ValueId input, const std::string& name, int64_t n) {
    return g.Add(ops::RmsNorm{.x = input, .weight = vector(name + ".weight", n), .eps = kBatchEps},
                 name);
  };
  const auto sum = [&](ValueId residual, ValueId input, const std::string& name) {
    return g.Add(ops::ResidualNorm{.residual = residual,
                                   .x = input,
                                   .weight = vector(name + ".weight", kBatchWidth),
                                   .eps = kBatchEps},
                 name);
  };
  const auto rotated = [&](ValueId input, const std::string& name, int64_t heads) {
    const ValueId flat = linear(input, name + ".flat", heads * kOwn.dim, kBatchWidth);
    const ValueId split = g.Add(ops::ReshapeTo(flat, {heads, kOwn.dim}), name + ".heads");
    return g.Add(ops::Rope{.x = norm(split, name + ".norm", kOwn.dim),
                           .pos = rows.q_pos,
                           .theta = 1e4F,
                           .n_rot = static_cast<int>(kOwn.dim)},
                 name);
  };
  const auto cached = [&](ValueId value, const std::string& name) {
    return g.Add(ops::Cast{.x = value, .dtype = kOwn.cache.keys}, name);
  };
  const ValueId x = b.Floats("x", F({kT, kBatchWidth}));
  const ValueId input = norm(x, "input.norm", kBatchWidth);
  const ValueId k = cached(rotated(input, "k", kOwn.kv_heads), "k.cached");
  const ValueId v =
      cached(g.Add(ops::ReshapeTo(linear(input, "v", kOwn.kv_heads * kOwn.dim, kBatchWidth),
                                  {kOwn.kv_heads, kOwn.dim})),
             "v.cached");
  const ValueId mix = AddBatchAttention(b, kOwn, rotated(input, "q", kOwn.heads), k, v, rows);
  g.Add(
      ops::StateAppend{
          .state = g.graph().Find("k_state"), .rows = k, .pos = rows.kv_pos, .slot = rows.kv_slot},
      "k.next");
  g.Add(
      ops::StateAppend{
          .state = g.graph().Find("v_state"), .rows = v, .pos = rows.kv_pos, .slot = rows.kv_slot},
      "v.next");
  const ValueId flat = g.Add(ops::ReshapeTo(mix, {kOwn.heads * kOwn.dim}), "mix.flat");
  const ValueId middle =
      sum(x, linear(flat, "mix.out", kBatchWidth, kOwn.heads * kOwn.dim), "middle");
  const TensorType wide(dtype, {kBatchWidth, kBatchWidth});
  const ValueId hidden = g.Add(ops::GeGluLinear{.x = norm(middle, "middle.norm", kBatchWidth),
                                                .gate_weight = b.Weight("gate.weight", wide),
                                                .up_weight = b.Weight("up.weight", wide)},
                               "hidden");
  const ValueId end = sum(middle, linear(hidden, "down", kBatchWidth, kBatchWidth), "end");
  const ValueId wanted = g.Add(
      ops::GatherRows{.table = end, .ids = b.Ints("wanted", I({Dim::R()}), 0, 0)}, "wanted.rows");
  const ValueId logits = linear(norm(wanted, "end.norm", kBatchWidth), "logits", 320, kBatchWidth);
  b.Output(logits);
  b.Output(g.Add(ops::ArgMax{.x = logits}, "best"));
}

// The other ops of a layer and of the steps of samplers.
void BatchRowOps(CaseBuilder& b, DType /*dtype*/) {
  constexpr int64_t kColumns = 5000, kBest = 64, kBiases = 3, kCapacity = 32;
  GraphBuilder& g = b.graph();
  const ops::AttentionRows rows = AddCaches(b, kSmallCaches);
  const ValueId x = b.Floats("x", F({kT, kBatchWidth}), -3, 3);
  const ValueId weight = b.Constant("norm.weight", F({kBatchWidth}), 0.5, 1.5);
  b.Output(g.Add(ops::RmsNorm{.x = x, .weight = weight, .eps = kBatchEps}, "norm"));
  const ValueId heads = g.Add(ops::ReshapeTo(x, {kBatchWidth / 64, 64}), "heads");
  b.Output(g.Add(ops::Rope{.x = heads, .pos = rows.q_pos, .theta = 1e4F, .n_rot = 64}, "rotated"));

  const ValueId raw = b.Floats("logits", F({kT, kColumns}), -9, 9);
  const ValueId logits = g.Add(ops::Softcap{.x = raw, .cap = 5}, "capped");
  b.Output(logits);
  b.Output(g.Add(ops::Softmax{logits}, "probabilities"));
  b.Output(g.Add(ops::ArgMax{logits}, "best"));
  b.Output(g.Add(ops::Reduce{.x = logits, .fn = RL_REDUCE_SUM}, "sum"));
  const ValueId bits = b.Ints("bits", I({kT, (kColumns + 31) / 32}), INT32_MIN, INT32_MAX);
  const ValueId allowed = g.Add(ops::TokenMask{.logits = logits, .bits = bits}, "allowed");
  std::vector<int32_t> distinct(static_cast<size_t>(b.extents().t * kBiases));
  for (size_t i = 0; i < distinct.size(); ++i) distinct[i] = 101 * static_cast<int32_t>(i);
  const ValueId ids = b.Ints("ids", I({kT, kBiases}), distinct);
  const ValueId bias = b.Floats("bias", F({kT, kBiases}));
  const ValueId biased = g.Add(ops::RowBias{.logits = allowed, .ids = ids, .bias = bias}, "biased");
  std::vector<double> penalties, draws;
  for (int64_t row = 0; row < b.extents().t; ++row) {
    const double i = static_cast<double>(row);
    penalties.insert(penalties.end(), {1 + 0.05 * i, 0.1 * i, 0.5 - 0.1 * i, 2 * i});
    draws.insert(draws.end(), {0.5 + 0.1 * i, 4 * i, 0.95, -3, 1});
  }
  const TensorType history(DType::kI32, {b.extents().t, kCapacity});
  const ValueId penalised = g.Add(
      ops::WithRows(ops::RowPenalties{.logits = biased,
                                      .history = b.State("history", history, 0, kColumns - 1),
                                      .tokens = b.Ints("tokens", I({kT}), 0, kColumns - 1),
                                      .settings = b.Floats("penalties", F({kT, 4}), penalties)},
                    rows),
      "penalised");
  b.Output(penalised);
  const auto few = g.Add(ops::TopK{.x = penalised, .k = kBest}, "few");
  b.Output(few.values);
  b.Output(few.indices);
  const ValueId u = b.Floats("u", F({kT}), 0, 0.999);
  const ValueId settings = b.Floats("settings", F({kT, 5}), draws);
  b.Output(g.Add(ops::RowSample{.x = few.values, .u = u, .settings = settings}, "of_few"));
  b.Output(g.Add(ops::RowSample{.x = penalised, .u = u, .settings = settings}, "of_all"));
}

CaseSpec BatchSpec(const std::string& name, OpKind kind, BatchPattern pattern, DType dtype,
                   int64_t slots) {
  return {fmt::format("{}_{}_slots", name, slots), kind, [=](uint64_t seed) {
            CaseBuilder b(seed, slots, slots);
            pattern(b, dtype);
            return std::move(b).Finish(ToleranceClass::kComposite);
          }};
}

// Few slots, many, and still more, between which backends choose other kernels.
constexpr int64_t kFewSlots = 4, kManySlots = 16, kMostSlots = 17;

}  // namespace

std::vector<CaseSpec> BatchCases() {
  std::vector<CaseSpec> cases;
  const auto add = [&](const std::string& name, OpKind kind, BatchPattern pattern, DType dtype,
                       int64_t slots) {
    cases.push_back(
        BatchSpec(fmt::format("{}/{}", name, NameOf(dtype)), kind, pattern, dtype, slots));
  };
  for (const DType dtype : WeightTypes()) {
    add("products", OpKind::kMatMul, BatchProducts, dtype, kManySlots);
  }
  for (const DType dtype : {DType::kF16, DType::kQ4_K, DType::kQ8_0}) {
    add("adapted", OpKind::kAdaptedLinear, BatchAdapted, dtype, kManySlots);
    add("row_adapted", OpKind::kRowAdaptedLinear, BatchRowAdapted, dtype, kManySlots);
    add("adapter_sums", OpKind::kAdapterSum, BatchAdapterSums, dtype, kManySlots);
  }
  add("experts", OpKind::kMoeFfn, BatchExperts, DType::kQ3_K, kManySlots);
  add("experts", OpKind::kMoeFfn, BatchExperts, DType::kQ6_K, kFewSlots);
  add("products", OpKind::kMatMul, BatchProducts, DType::kQ4_K, kMostSlots);
  for (const BatchWeights& weights : kWideWeights) {
    const int64_t slots = weights.n > 64 ? kFewSlots : kManySlots;
    cases.push_back(
        {fmt::format("products/{}_{}_{}_slots_wide", NameOf(weights.dtype), weights.name, slots),
         OpKind::kMatMul, [&weights, slots](uint64_t seed) {
           CaseBuilder b(seed, slots, slots);
           BatchWideProducts(b, weights);
           return std::move(b).Finish(ToleranceClass::kComposite);
         }});
  }
  for (const int64_t slots : {kFewSlots, kManySlots, kMostSlots}) {
    add("layer", OpKind::kAttention, BatchLayer, DType::kQ4_K, slots);
  }
  add("layer", OpKind::kAttention, BatchLayer, DType::kQ6_K, kManySlots);
  add("rows", OpKind::kRowSample, BatchRowOps, DType::kF32, kManySlots);
  for (const BatchHeads& heads : kBatchHeads) {
    const int64_t slots = heads.window > 0 ? kFewSlots : kManySlots;
    cases.push_back({fmt::format("attention/{}_{}_slots", heads.name, slots), OpKind::kAttention,
                     [&heads, slots](uint64_t seed) {
                       CaseBuilder b(seed, slots, slots);
                       AddCaches(b, heads);
                       return std::move(b).Finish(ToleranceClass::kContraction);
                     }});
  }
  return cases;
}

}  // namespace rullama::conformance
