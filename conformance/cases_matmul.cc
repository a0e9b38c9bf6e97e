// Cases of the products with weights: every weight type, both orders, sizes around the tiles of
// kernels.
#include <span>

#include "conformance/case.h"

namespace rullama::conformance {
namespace {

ToleranceClass ToleranceClassOf(DType dtype) {
  if (IsBlockType(dtype)) return ToleranceClass::kBlocks;
  return dtype == DType::kF16 ? ToleranceClass::kHalfFactors : ToleranceClass::kContraction;
}

// Lengths of a row of weights of this type: one block, several, a count of blocks that no vector
// length divides, and the widths of published models.
std::vector<int64_t> LengthsOf(DType dtype) {
  const auto block = static_cast<int64_t>(InfoOf(dtype).block_elements);
  if (block == 1) return {1, 31, 33, 257, 640};
  if (block == 256) return {256, 768, 1536};
  return {block, 5 * block, 7 * block, 2112 / block * block};
}

struct Shape {
  int64_t t, n, k;
};
std::vector<Shape> ShapesOf(DType dtype) {
  const std::vector<int64_t> lengths = LengthsOf(dtype);
  std::vector<Shape> shapes;
  for (const int64_t k : lengths) {
    shapes.push_back({1, 31, k});
    shapes.push_back({7, 67, k});
  }
  shapes.push_back({1, 1, lengths[1]});
  shapes.push_back({2, 128, lengths[0]});
  shapes.push_back({33, 17, lengths[1]});
  // Rows in whole groups, which backends may rearrange.
  shapes.push_back({1, 96, lengths.back()});
  shapes.push_back({13, 64, lengths[1]});
  shapes.push_back({70, 96, lengths[1]});
  // A length that is a multiple of 64, which some kernels need.
  const auto block = static_cast<int64_t>(InfoOf(dtype).block_elements);
  if (block > 1 && block < 256) shapes.push_back({70, 96, 6 * block});
  // Few rows and many terms, which kernels divide among workgroups, in unequal parts too.
  if (dtype == DType::kQ4_K) shapes.push_back({20, 96, 3328});
  if (dtype == DType::kQ8_0) shapes.push_back({20, 96, 3392});
  // Results enough for the larger tiles of kernels that have several: wide cases.
  if (dtype == DType::kQ4_K) {
    shapes.push_back({70, 12740, lengths[0]});
    shapes.push_back({193, 12740, lengths[0]});
  }
  // Rows enough for kernels that pay from many on.
  if (dtype == DType::kQ6_K || dtype == DType::kF16) shapes.push_back({150, 67, lengths[1]});
  // In f16 too: results enough for larger tiles, and terms that fill no whole step of a tile.
  if (dtype == DType::kF16) {
    shapes.push_back({150, 2201, 176});
    shapes.push_back({150, 8500, 64});
    shapes.push_back({21, 70, 2112});
  }
  return shapes;
}

// UnevenRows with one value in a block far above the others, and a block of zeros: what 8-bit
// scales of neighbours must not see.
ValueId UnevenRows(CaseBuilder& b, int64_t k) {
  const TensorType type = F({kT, k});
  std::vector<double> values;
  for (int64_t n = type.ElementsAt(b.extents()); n > 0; --n) values.push_back(b.random().Normal());
  const auto row = static_cast<size_t>(k);
  for (size_t i = 0; i < row && i < 32 && k > 64; ++i) values[i] = 0;
  if (k > 64) values[row - 3] *= 1000;
  return b.Floats("x", type, values);
}

void AddMatMul(std::vector<CaseSpec>& cases, DType dtype) {
  for (const Shape& s : ShapesOf(dtype)) {
    cases.push_back(
        {fmt::format("matmul/{}_k{}_n{}_t{}{}", NameOf(dtype), s.k, s.n, s.t, WideSuffix(s.n)),
         OpKind::kMatMul, [=](uint64_t seed) {
           CaseBuilder b(seed, s.t);
           const ValueId x = UnevenRows(b, s.k);
           const ValueId weight = b.Weight("weight", {dtype, {s.n, s.k}});
           return OneOp(std::move(b), OpKind::kMatMul, {x, weight}, OpAttrs(rl_matmul_attrs{0, 1}),
                        ToleranceClassOf(dtype));
         }});
  }
  for (const int64_t n : {LengthsOf(dtype)[0], LengthsOf(dtype)[1]}) {
    cases.push_back({fmt::format("matmul/{}_as_stored_n{}", NameOf(dtype), n), OpKind::kMatMul,
                     [=](uint64_t seed) {
                       CaseBuilder b(seed, 5);
                       const ValueId x = UnevenRows(b, 77);
                       const ValueId weight = b.Weight("weight", {dtype, {77, n}});
                       return OneOp(std::move(b), OpKind::kMatMul, {x, weight},
                                    OpAttrs(rl_matmul_attrs{0, 0}), ToleranceClassOf(dtype));
                     }});
  }
}

// Many rows and terms: what kernels take in tiles and in parts.
void AddManyAsStored(std::vector<CaseSpec>& cases) {
  constexpr int64_t kTerms = 8256, kColumns = 256;
  for (const DType dtype : {DType::kQ4_K, DType::kQ6_K, DType::kQ8_0}) {
    cases.push_back({fmt::format("matmul/{}_as_stored_t150", NameOf(dtype)), OpKind::kMatMul,
                     [=](uint64_t seed) {
                       CaseBuilder b(seed, 150);
                       const ValueId x = UnevenRows(b, kTerms);
                       const ValueId weight = b.Weight("weight", {dtype, {kTerms, kColumns}});
                       return OneOp(std::move(b), OpKind::kMatMul, {x, weight},
                                    OpAttrs(rl_matmul_attrs{0, 0}), ToleranceClassOf(dtype));
                     }});
  }
}

void AddFused(std::vector<CaseSpec>& cases, DType dtype) {
  const int64_t k = LengthsOf(dtype)[1];
  for (const int64_t t : {1, 7, 13, 20, 40, 70, 150}) {
    const int64_t n = t == 70 ? 6370 : 67;  // enough for larger tiles
    if (t == 70 && dtype != DType::kQ6_K) continue;
    if ((t == 13 || t == 20 || t == 150) && dtype != DType::kQ4_K) continue;
    // Small activations, and some that take the gate to both of its ends.
    const double most = t == 7 ? 5 : 0.3;
    cases.push_back({fmt::format("geglu_linear/{}_t{}{}", NameOf(dtype), t, WideSuffix(2 * n)),
                     OpKind::kGeGluLinear, [=](uint64_t seed) {
                       CaseBuilder b(seed, t);
                       const ValueId x = b.Floats("x", F({kT, k}), -most, most);
                       const ValueId gate = b.Weight("gate", {dtype, {n, k}});
                       const ValueId up = b.Weight("up", {dtype, {n, k}});
                       return OneOp(std::move(b), OpKind::kGeGluLinear, {x, gate, up},
                                    OpAttrs(OpKind::kGeGluLinear), ToleranceClassOf(dtype));
                     }});
  }
  cases.push_back(
      {fmt::format("soft_embed/{}", NameOf(dtype)), OpKind::kSoftEmbed, [=](uint64_t seed) {
         CaseBuilder b(seed, 5);
         const ValueId logits = b.Floats("logits", F({kT, 77}), -10, 10);
         const ValueId inverse = b.Floats("inverse", F({1}), std::vector<double>{1.6});
         const ValueId table = b.Weight("table", {dtype, {77, k}});
         return OneOp(std::move(b), OpKind::kSoftEmbed, {logits, inverse, table},
                      OpAttrs(OpKind::kSoftEmbed), ToleranceClassOf(dtype));
       }});
}

// The matrices of an adapter of a weight [n, k].
struct AdapterMatrices {
  ValueId a, b;
};
AdapterMatrices AddAdapter(CaseBuilder& b, const std::string& name, int64_t n, int64_t k,
                           int64_t rank) {
  return {b.Constant(name + ".a", F({rank, k}), -0.2, 0.2),
          b.Constant(name + ".b", F({n, rank}), -0.2, 0.2)};
}

// Layers with adapters: rows of weights in whole groups and others, more than kernels take at a
// time; ranks that fill vectors and others.
void AddAdapted(std::vector<CaseSpec>& cases, DType dtype) {
  struct AdaptedShape {
    int64_t t, n, rank;
  };
  const int64_t k = LengthsOf(dtype)[1];
  for (const auto [t, n, rank] : {AdaptedShape{1, 96, 8}, AdaptedShape{7, 67, 3},
                                  AdaptedShape{40, 160, 16}, AdaptedShape{150, 288, 33}}) {
    if (t == 150 && dtype != DType::kQ4_K && dtype != DType::kF16) continue;
    const std::string suffix = fmt::format("{}_n{}_r{}_t{}", NameOf(dtype), n, rank, t);
    cases.push_back({"adapted_linear/" + suffix, OpKind::kAdaptedLinear,
                     [=, t = t, n = n, rank = rank](uint64_t seed) {
                       CaseBuilder b(seed, t);
                       const ValueId x = UnevenRows(b, k);
                       const ValueId weight = b.Weight("weight", {dtype, {n, k}});
                       const auto [down, up] = AddAdapter(b, "weight", n, k, rank);
                       return OneOp(std::move(b), OpKind::kAdaptedLinear, {x, weight, down, up},
                                    OpAttrs(OpKind::kAdaptedLinear), ToleranceClassOf(dtype));
                     }});
    cases.push_back({"adapted_geglu_linear/" + suffix, OpKind::kAdaptedGeGluLinear,
                     [=, t = t, n = n, rank = rank](uint64_t seed) {
                       CaseBuilder b(seed, t);
                       const ValueId x = b.Floats("x", F({kT, k}), -0.3, 0.3);
                       const ValueId gate = b.Weight("gate", {dtype, {n, k}});
                       const ValueId up = b.Weight("up", {dtype, {n, k}});
                       const auto [gate_a, gate_b] = AddAdapter(b, "gate", n, k, rank);
                       const auto [up_a, up_b] = AddAdapter(b, "up", n, k, rank + 1);
                       return OneOp(std::move(b), OpKind::kAdaptedGeGluLinear,
                                    {x, gate, gate_a, gate_b, up, up_a, up_b},
                                    OpAttrs(OpKind::kAdaptedGeGluLinear), ToleranceClassOf(dtype));
                     }});
  }
}

// Adapters among which rows choose.
class ChosenAdapters {
 public:
  ChosenAdapters(CaseBuilder& b, int64_t places) : b_(b) {
    const auto pairs = static_cast<size_t>(b.extents().t * places);
    std::vector<int32_t> ids;
    std::vector<double> factors;
    for (size_t i = 0; i < pairs; ++i) {
      // Rows with the same adapter that follow each other, and places without one.
      ids.push_back(static_cast<int32_t>(i < pairs / 3 ? 1 : b.random().Int(0, kCount - 1)));
      factors.push_back(i % 5 == 3 ? 0 : b.random().Int(0, 1) == 0 ? -0.5 : 1.25);
    }
    ids_ = b.Ints("ids", I({kT, places}), ids);
    factors_ = b.Floats("factors", F({kT, places}), factors);
  }

  [[nodiscard]] ValueId ids() const { return ids_; }
  [[nodiscard]] ValueId factors() const { return factors_; }
  // The stacks of a weight [n, k].
  [[nodiscard]] AdapterMatrices Stacks(const std::string& name, int64_t n, int64_t k,
                                       int64_t rank) const {
    return {b_.Constant(name + ".a", F({kCount, rank, k}), -0.2, 0.2),
            b_.Constant(name + ".b", F({kCount, n, rank}), -0.2, 0.2)};
  }

 private:
  static constexpr int64_t kCount = 3;

  CaseBuilder& b_;
  ValueId ids_, factors_;
};

void AddRowAdapted(std::vector<CaseSpec>& cases, DType dtype) {
  struct RowAdaptedShape {
    int64_t t, n, rank, places;
  };
  const int64_t k = LengthsOf(dtype)[1];
  for (const auto [t, n, rank, places] :
       {RowAdaptedShape{1, 96, 8, 1}, RowAdaptedShape{7, 67, 3, 2}, RowAdaptedShape{40, 160, 16, 1},
        RowAdaptedShape{150, 288, 33, 3}}) {
    if (t == 150 && dtype != DType::kQ4_K && dtype != DType::kF16) continue;
    const std::string suffix = fmt::format("{}_n{}_r{}_t{}", NameOf(dtype), n, rank, t);
    cases.push_back({"row_adapted_linear/" + suffix, OpKind::kRowAdaptedLinear,
                     [=, t = t, n = n, rank = rank, places = places](uint64_t seed) {
                       CaseBuilder b(seed, t);
                       const ValueId x = UnevenRows(b, k);
                       const ValueId weight = b.Weight("weight", {dtype, {n, k}});
                       const ChosenAdapters rows(b, places);
                       const auto [down, up] = rows.Stacks("weight", n, k, rank);
                       return OneOp(std::move(b), OpKind::kRowAdaptedLinear,
                                    {x, weight, down, up, rows.ids(), rows.factors()},
                                    OpAttrs(OpKind::kRowAdaptedLinear), ToleranceClassOf(dtype));
                     }});
    cases.push_back({"row_adapted_geglu_linear/" + suffix, OpKind::kRowAdaptedGeGluLinear,
                     [=, t = t, n = n, rank = rank, places = places](uint64_t seed) {
                       CaseBuilder b(seed, t);
                       const ValueId x = b.Floats("x", F({kT, k}), -0.3, 0.3);
                       const ValueId gate = b.Weight("gate", {dtype, {n, k}});
                       const ValueId up = b.Weight("up", {dtype, {n, k}});
                       const ChosenAdapters rows(b, places);
                       const auto [gate_a, gate_b] = rows.Stacks("gate", n, k, rank);
                       const auto [up_a, up_b] = rows.Stacks("up", n, k, rank + 1);
                       return OneOp(
                           std::move(b), OpKind::kRowAdaptedGeGluLinear,
                           {x, gate, gate_a, gate_b, up, up_a, up_b, rows.ids(), rows.factors()},
                           OpAttrs(OpKind::kRowAdaptedGeGluLinear), ToleranceClassOf(dtype));
                     }});
  }
}

// Sums without a product, which have no weight of a type: many places, and columns that fill no
// vector.
void AddAdapterSums(std::vector<CaseSpec>& cases) {
  struct SumShape {
    int64_t t, n, k, rank, places;
  };
  for (const auto [t, n, k, rank, places] :
       {SumShape{1, 256, 1536, 8, 1}, SumShape{1, 65, 96, 5, 64}, SumShape{8, 128, 512, 16, 1},
        SumShape{33, 67, 68, 40, 4}, SumShape{150, 512, 256, 8, 1}}) {
    cases.push_back({fmt::format("adapter_sum/n{}_k{}_r{}_p{}_t{}", n, k, rank, places, t),
                     OpKind::kAdapterSum,
                     [=, t = t, n = n, k = k, rank = rank, places = places](uint64_t seed) {
                       CaseBuilder b(seed, t);
                       const ValueId base = b.Floats("base", F({kT, n}));
                       const ValueId x = b.Floats("x", F({kT, k}));
                       const ChosenAdapters rows(b, places);
                       const auto [down, up] = rows.Stacks("weight", n, k, rank);
                       return OneOp(std::move(b), OpKind::kAdapterSum,
                                    {x, base, down, up, rows.ids(), rows.factors()},
                                    OpAttrs(OpKind::kAdapterSum), ToleranceClassOf(DType::kF32));
                     }});
  }
}

// Mixtures of experts: one row, several, an expert that all rows choose and experts that none does.
void AddExperts(std::vector<CaseSpec>& cases, DType dtype) {
  constexpr int64_t kExperts = 7, kUsed = 3, kWidth = 256, kInner = 160;
  const auto choose = [](CaseBuilder& b, int64_t t) {
    std::vector<int32_t> chosen;
    for (int64_t row = 0; row < t; ++row) {
      const auto first = static_cast<int32_t>(b.random().Int(1, 3));
      for (const int32_t expert : {0, first, first + 2}) chosen.push_back(expert);
    }
    return b.Ints("experts", I({kT, kUsed}), chosen);
  };
  const DType inner_dtype = kInner % InfoOf(dtype).block_elements == 0 ? dtype : DType::kQ8_0;
  for (const int64_t t : {1, 7, 40, 350}) {
    if (t == 350 && dtype != DType::kQ4_K) continue;  // 150 rows for an expert on average
    const std::string suffix = fmt::format("{}_t{}", NameOf(dtype), t);
    for (const bool shared : {true, false}) {
      cases.push_back({fmt::format("grouped_matmul/{}{}", suffix, shared ? "" : "_pairs"),
                       OpKind::kGroupedMatMul, [=](uint64_t seed) {
                         CaseBuilder b(seed, t);
                         const TensorType rows = shared ? F({kT, kWidth}) : F({kT, kUsed, kWidth});
                         const ValueId x = b.Floats("x", rows);
                         const ValueId weight = b.Weight("weight", {dtype, {kExperts, 67, kWidth}});
                         return OneOp(std::move(b), OpKind::kGroupedMatMul,
                                      {x, weight, choose(b, t)}, OpAttrs(OpKind::kGroupedMatMul),
                                      ToleranceClassOf(dtype));
                       }});
    }
    if (t <= 40) {
      cases.push_back({fmt::format("grouped_matmul/{}_stored", suffix), OpKind::kGroupedMatMul,
                       [=](uint64_t seed) {
                         CaseBuilder b(seed, t);
                         const ValueId x = b.Floats("x", F({kT, kUsed, 67}));
                         const ValueId weight = b.Weight("weight", {dtype, {kExperts, 67, kWidth}});
                         return OneOp(
                             std::move(b), OpKind::kGroupedMatMul, {x, weight, choose(b, t)},
                             OpAttrs(rl_grouped_matmul_attrs{0, 1}), ToleranceClassOf(dtype));
                       }});
    }
    for (const bool fused : {true, false}) {
      cases.push_back(
          {fmt::format("moe_ffn/{}{}", suffix, fused ? "_fused" : ""), OpKind::kMoeFfn,
           [=](uint64_t seed) {
             CaseBuilder b(seed, t);
             const ValueId x = b.Floats("x", F({kT, kWidth}), -0.3, 0.3);
             const ValueId weights = b.Floats("weights", F({kT, kUsed}), 0, 1);
             const ValueId chosen = choose(b, t);
             const int64_t gate_rows = fused ? 2 * kInner : kInner;
             const ValueId gate = b.Weight("gate", {dtype, {kExperts, gate_rows, kWidth}});
             const ValueId up =
                 fused ? kNoValue : b.Weight("up", {dtype, {kExperts, kInner, kWidth}});
             const ValueId down = b.Weight("down", {inner_dtype, {kExperts, kWidth, kInner}});
             const ValueId scale = fused ? b.Constant("scale", F({kExperts}), 0.5, 2) : kNoValue;
             return OneOp(std::move(b), OpKind::kMoeFfn,
                          {x, weights, chosen, gate, up, down, scale}, OpAttrs(OpKind::kMoeFfn),
                          ToleranceClass::kComposite);
           }});
    }
  }
}

// Experts with numbers of rows around those of the tiles of kernels. Each row chooses two.
class RaggedExperts {
 public:
  static constexpr int64_t kUsed = 2;

  // With these numbers of rows.
  RaggedExperts(std::initializer_list<size_t> rows_of) {
    int32_t expert = 0;
    for (const size_t rows : rows_of) sorted_.insert(sorted_.end(), rows, expert++);
  }

  [[nodiscard]] int64_t rows() const { return static_cast<int64_t>(sorted_.size()) / kUsed; }
  ValueId AddTo(CaseBuilder& b) const {
    std::vector<int32_t> chosen;
    const auto rows = static_cast<size_t>(this->rows());
    for (size_t row = 0; row < rows; ++row) {
      for (const size_t at : {row, row + rows}) chosen.push_back(sorted_[at]);
    }
    return b.Ints("experts", I({kT, kUsed}), chosen);
  }

 private:
  std::vector<int32_t> sorted_;  // the expert of each pair
};

// Few rows for some and for many experts, and many rows: kernels may choose their tiles by the
// average. All lengths are multiples of 64, which some kernels need.
void AddRaggedExperts(std::vector<CaseSpec>& cases, DType dtype) {
  constexpr int64_t kResults = 67, kWidth = 256;
  const int64_t inner = InfoOf(dtype).block_elements > 64 ? 256 : 192;
  const RaggedExperts few = {0, 1, 15, 16, 17, 33, 64, 65, 1}, full = {1, 128, 129, 130};
  const struct {
    int64_t count;
    const RaggedExperts& experts;
  } sets[] = {{10, few}, {14, few}, {30, few}, {4, full}};  // 21.2, 15.1, 7.1 and 97 rows each
  for (const auto& [count, ragged] : sets) {
    const std::string suffix = fmt::format("{}_ragged_e{}", NameOf(dtype), count);
    for (const bool shared : {true, false}) {
      cases.push_back(
          {fmt::format("grouped_matmul/{}{}", suffix, shared ? "" : "_pairs"),
           OpKind::kGroupedMatMul, [=, count = count, ragged = ragged](uint64_t seed) {
             CaseBuilder b(seed, ragged.rows());
             const ValueId x =
                 b.Floats("x", shared ? F({kT, kWidth}) : F({kT, RaggedExperts::kUsed, kWidth}));
             const ValueId weight = b.Weight("weight", {dtype, {count, kResults, kWidth}});
             return OneOp(std::move(b), OpKind::kGroupedMatMul, {x, weight, ragged.AddTo(b)},
                          OpAttrs(OpKind::kGroupedMatMul), ToleranceClassOf(dtype));
           }});
    }
    cases.push_back(
        {fmt::format("moe_ffn/{}", suffix), OpKind::kMoeFfn,
         [=, count = count, ragged = ragged](uint64_t seed) {
           CaseBuilder b(seed, ragged.rows());
           const ValueId x = b.Floats("x", F({kT, kWidth}), -0.3, 0.3);
           const ValueId weights = b.Floats("weights", F({kT, RaggedExperts::kUsed}), 0, 1);
           const ValueId chosen = ragged.AddTo(b);
           const ValueId gate = b.Weight("gate", {dtype, {count, 2 * inner, kWidth}});
           const ValueId down = b.Weight("down", {dtype, {count, kWidth, inner}});
           return OneOp(std::move(b), OpKind::kMoeFfn,
                        {x, weights, chosen, gate, kNoValue, down, kNoValue},
                        OpAttrs(OpKind::kMoeFfn), ToleranceClass::kComposite);
         }});
  }
}

// More experts than a workgroup has invocations, most of them without rows.
void AddManyExperts(std::vector<CaseSpec>& cases) {
  constexpr int64_t kRows = 100, kUsed = 2, kResults = 3, kWidth = 64;
  for (const int64_t count : {600, 1024, 2048}) {
    cases.push_back(
        {fmt::format("grouped_matmul/f16_e{}", count), OpKind::kGroupedMatMul, [=](uint64_t seed) {
           CaseBuilder b(seed, kRows);
           const ValueId x = b.Floats("x", F({kT, kWidth}));
           const ValueId weight = b.Weight("weight", {DType::kF16, {count, kResults, kWidth}});
           const ValueId chosen =
               b.Ints("experts", I({kT, kUsed}), 0, static_cast<int32_t>(count) - 1);
           return OneOp(std::move(b), OpKind::kGroupedMatMul, {x, weight, chosen},
                        OpAttrs(OpKind::kGroupedMatMul), ToleranceClassOf(DType::kF16));
         }});
  }
}

// The widths of each shipped configuration, a few rows of each matrix.
void AddModelShapes(std::vector<CaseSpec>& cases) {
  struct Width {
    const char* model;
    int64_t width, ffn;
  };
  constexpr Width kWidths[] = {
      {"e2b", 1536, 6144}, {"e4b", 2560, 10240}, {"31b", 5376, 21504}, {"26b", 2816, 2112}};
  for (const Width& model : kWidths) {
    for (const DType dtype : {DType::kQ4_K, DType::kQ6_K, DType::kQ8_0, DType::kF16}) {
      for (const int64_t k : {model.width, model.ffn}) {
        if (k % static_cast<int64_t>(InfoOf(dtype).block_elements) != 0) continue;
        cases.push_back({fmt::format("matmul/{}_{}_k{}", NameOf(dtype), model.model, k),
                         OpKind::kMatMul, [=](uint64_t seed) {
                           CaseBuilder b(seed, 3);
                           const ValueId x = UnevenRows(b, k);
                           const ValueId weight = b.Weight("weight", {dtype, {32, k}});
                           return OneOp(std::move(b), OpKind::kMatMul, {x, weight},
                                        OpAttrs(rl_matmul_attrs{0, 1}), ToleranceClassOf(dtype));
                         }});
      }
    }
  }
}

// Matrices of an adapter that is trained: states, in both directions; and a matrix that is computed
// each step.
void AddVariableWeights(std::vector<CaseSpec>& cases) {
  struct Matrix {
    int64_t n, k;
  };
  for (const auto [n, k] : {Matrix{16, 300}, Matrix{300, 8}, Matrix{5, 64}}) {
    for (const int64_t t : {1, 7, 150}) {
      for (const int transposed : {1, 0}) {
        for (const bool state : {true, false}) {
          if (!state && n != 5) continue;
          cases.push_back({fmt::format("matmul/{}_n{}_k{}_t{}{}", state ? "state" : "computed", n,
                                       k, t, transposed == 1 ? "" : "_stored"),
                           OpKind::kMatMul, [n = n, k = k, t, transposed, state](uint64_t seed) {
                             CaseBuilder b(seed, t);
                             const ValueId x = b.Floats("x", F({kT, transposed == 1 ? k : n}));
                             const ValueId weight = state ? b.State("weight", F({n, k}))
                                                          : b.Floats("weight", F({n, k}));
                             return OneOp(std::move(b), OpKind::kMatMul, {x, weight},
                                          OpAttrs(rl_matmul_attrs{0, transposed}),
                                          ToleranceClass::kContraction);
                           }});
        }
      }
    }
  }
}

}  // namespace

void AddMatMulCases(std::vector<CaseSpec>& cases) {
  for (const DType dtype : WeightTypes()) {
    const size_t first = cases.size();
    AddMatMul(cases, dtype);
    AddFused(cases, dtype);
    AddAdapted(cases, dtype);
    AddRowAdapted(cases, dtype);
    AddExperts(cases, dtype);
    if (dtype == DType::kQ4_K || dtype == DType::kQ8_0 || dtype == DType::kF16) {
      AddRaggedExperts(cases, dtype);
    }
    if (dtype == DType::kF16) AddManyExperts(cases);
    for (CaseSpec& added : std::span(cases).subspan(first)) added.weights = dtype;
  }
  AddAdapterSums(cases);
  AddManyAsStored(cases);
  AddVariableWeights(cases);
  AddModelShapes(cases);
}

}  // namespace rullama::conformance
