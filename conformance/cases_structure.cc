// Cases of the ops that move elements without computing.
#include <cmath>
#include <limits>

#include "conformance/case.h"

namespace rullama::conformance {
namespace {

constexpr DType kPlain[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kI32};

std::string Name(const char* op, DType dtype, std::string_view rest) {
  return fmt::format("{}/{}_{}", op, NameOf(dtype), rest);
}

// A value of a plain dtype; integers small, floats of its own grid.
ValueId Plain(CaseBuilder& b, std::string_view name, const TensorType& type) {
  return type.dtype == DType::kI32 ? b.Ints(name, type, -1000, 1000) : b.Floats(name, type);
}

void AddMoves(std::vector<CaseSpec>& cases, DType dtype) {
  for (const int64_t t : {1, 7}) {
    const std::string rows = fmt::format("t{}", t);
    cases.push_back({Name("copy", dtype, rows), OpKind::kCopy, [=](uint64_t seed) {
                       CaseBuilder b(seed, t);
                       const ValueId x = Plain(b, "x", {dtype, {kT, 37}});
                       return OneOp(std::move(b), OpKind::kCopy, {x}, OpAttrs(OpKind::kCopy),
                                    ToleranceClass::kExact);
                     }});
    cases.push_back({Name("reshape", dtype, rows), OpKind::kReshape, [=](uint64_t seed) {
                       CaseBuilder b(seed, t);
                       const ValueId x = Plain(b, "x", {dtype, {kT, 60}});
                       return OneOp(std::move(b), OpKind::kReshape, {x},
                                    OpAttrs(rl_reshape_attrs{0, 4, 5, 3, 4}),
                                    ToleranceClass::kExact);
                     }});
    for (const int axis : {1, 2}) {
      cases.push_back({Name("slice", dtype, fmt::format("axis{}_t{}", axis, t)), OpKind::kSlice,
                       [=](uint64_t seed) {
                         CaseBuilder b(seed, t);
                         const ValueId x = Plain(b, "x", {dtype, {kT, 5, 7}});
                         return OneOp(std::move(b), OpKind::kSlice, {x},
                                      OpAttrs(rl_slice_attrs{0, axis, 1, 3}),
                                      ToleranceClass::kExact);
                       }});
      cases.push_back({Name("concat", dtype, fmt::format("axis{}_t{}", axis, t)), OpKind::kConcat,
                       [=](uint64_t seed) {
                         CaseBuilder b(seed, t);
                         const ValueId first = Plain(b, "a", {dtype, {kT, axis == 1 ? 2 : 4, 6}});
                         const ValueId second =
                             Plain(b, "b", {dtype, {kT, axis == 1 ? 3 : 4, axis == 2 ? 5 : 6}});
                         return OneOp(std::move(b), OpKind::kConcat, {first, second},
                                      OpAttrs(rl_concat_attrs{0, axis}), ToleranceClass::kExact);
                       }});
    }
  }
}

// Values at the edges of each target's range; the same list for each source that can hold them.
std::vector<double> CastValues(DType from, DType to) {
  std::vector<double> values = {0, 1, -1, 2.5, -2.5, 0.3, 65504, -65504, 100.999, 3e-8};
  if (from == DType::kI32) return {0, 1, -1, 16777217, -16777217, 2147483647, -2147483648.0, 70000};
  if (to == DType::kI32) {
    for (const double v : {3e9, -3e9, 2147483520.0, -0.99, kNaN, kInfinity, -kInfinity}) {
      values.push_back(v);
    }
  } else {
    for (const double v : {65519.0, 65520.0, 1.0009765625, 1.00048828125, kInfinity, -kInfinity,
                           kNaN, 5.9604644775390625e-8, 6.1e-5}) {
      values.push_back(v);
    }
  }
  return values;
}

void AddCasts(std::vector<CaseSpec>& cases) {
  for (const DType from : kPlain) {
    for (const DType to : kPlain) {
      cases.push_back(
          {Name("cast", from, fmt::format("to_{}", NameOf(to))), OpKind::kCast, [=](uint64_t seed) {
             const std::vector<double> values = CastValues(from, to);
             CaseBuilder b(seed, 1);
             const TensorType type(from, {kT, static_cast<int64_t>(values.size())});
             ValueId x = kNoValue;
             if (from == DType::kI32) {
               x = b.Ints("x", type, std::vector<int32_t>(values.begin(), values.end()));
             } else {
               x = b.Floats("x", type, values);
             }
             return OneOp(std::move(b), OpKind::kCast, {x},
                          OpAttrs(rl_cast_attrs{0, static_cast<int32_t>(to)}),
                          ToleranceClass::kExact);
           }});
    }
  }
}

// Keys and values in blocks: random ones, blocks of zeros, of tiny numbers and with one that is
// large, and numbers that a code lies halfway between.
void AddQuantisingCasts(std::vector<CaseSpec>& cases) {
  constexpr int64_t kBlock = 32, kHeads = 2, kWidth = 96;
  for (const DType to : {DType::kQ8_0, DType::kQ4_0}) {
    cases.push_back({Name("cast", DType::kF32, fmt::format("to_{}", NameOf(to))), OpKind::kCast,
                     [=](uint64_t seed) {
                       CaseBuilder b(seed, 5);
                       const TensorType type = F({kT, kHeads, kWidth});
                       std::vector<double> values;
                       for (int64_t i = 0; i < type.ElementsAt(b.extents()); ++i) {
                         const int64_t block = i / kBlock;
                         double value = b.random().Uniform(-2, 2);
                         if (block % 7 == 1) value = 0;
                         if (block % 7 == 2) value *= 1e-9;
                         if (block % 7 == 3 && i % kBlock == 9) value *= 1000;
                         if (block % 7 == 4) value = static_cast<double>(i % 17) / 2 - 4;
                         if (block % 7 == 5) value = static_cast<double>(i % kBlock - 16) / 2;
                         values.push_back(static_cast<float>(value));
                       }
                       const ValueId x = b.Floats("x", type, values);
                       return OneOp(std::move(b), OpKind::kCast, {x},
                                    OpAttrs(rl_cast_attrs{0, static_cast<int32_t>(to)}),
                                    ToleranceClass::kExact);
                     }});
  }
}

void AddGathers(std::vector<CaseSpec>& cases) {
  std::vector<DType> tables = WeightTypes();
  tables.push_back(DType::kI32);
  for (const DType dtype : tables) {
    for (const bool part : {false, true}) {
      if (part && dtype == DType::kI32) continue;  // only weights have columns to choose
      cases.push_back(
          {Name("gather_rows", dtype, part ? "columns" : "whole"), OpKind::kGatherRows,
           [=](uint64_t seed) {
             constexpr int64_t kRows = 23, kColumns = 768, kBlock = 256;
             CaseBuilder b(seed, 5);
             const TensorType type(dtype, {kRows, kColumns});
             const ValueId table =
                 dtype == DType::kI32 ? b.Ints("table", type, -99, 99) : b.Weight("table", type);
             const ValueId ids = b.Ints("ids", I({kT}), {22, 0, 7, 7, 1});
             const rl_gather_rows_attrs attrs{0, part ? kBlock : 0, part ? kBlock : 0};
             // A decoder may round its products in another order.
             return OneOp(std::move(b), OpKind::kGatherRows, {table, ids}, OpAttrs(attrs),
                          IsBlockType(dtype) ? ToleranceClass::kRounding : ToleranceClass::kExact);
           }});
    }
  }
  for (const DType dtype : {DType::kF32, DType::kF16}) {
    cases.push_back({Name("gather_rows", dtype, "rank3"), OpKind::kGatherRows, [=](uint64_t seed) {
                       CaseBuilder b(seed, 3);
                       const ValueId table = b.Floats("table", {dtype, {6, 2, 9}});
                       const ValueId ids = b.Ints("ids", I({kT}), {5, 0, 2});
                       return OneOp(std::move(b), OpKind::kGatherRows, {table, ids},
                                    OpAttrs(OpKind::kGatherRows), ToleranceClass::kExact);
                     }});
  }
  for (const DType dtype : {DType::kF32, DType::kI32}) {
    cases.push_back({Name("gather_last", dtype, "t5"), OpKind::kGatherLast, [=](uint64_t seed) {
                       CaseBuilder b(seed, 5);
                       const ValueId x = Plain(b, "x", {dtype, {kT, 33}});
                       const ValueId index = b.Ints("index", I({kT}), {32, 0, -1, 16, 31});
                       return OneOp(std::move(b), OpKind::kGatherLast, {x, index},
                                    OpAttrs(OpKind::kGatherLast), ToleranceClass::kExact);
                     }});
  }
}

}  // namespace

void AddStructureCases(std::vector<CaseSpec>& cases) {
  for (const DType dtype : kPlain) AddMoves(cases, dtype);
  AddCasts(cases);
  AddQuantisingCasts(cases);
  AddGathers(cases);
}

}  // namespace rullama::conformance
