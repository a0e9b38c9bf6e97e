// Cases of state_append: rings, several slots, rows that compete for one place.
#include "conformance/case.h"

namespace rullama::conformance {
namespace {

struct Append {
  const char* name;
  int64_t slots, capacity;
  std::vector<int32_t> pos, slot;
};

const std::vector<Append>& Appends() {
  static const std::vector<Append> kAppends = {
      {"one", 1, 8, {3}, {0}},
      {"first", 2, 8, {0, 1, 2}, {1, 1, 1}},
      {"wraps", 1, 8, {6, 7, 8, 9}, {0, 0, 0, 0}},
      {"far_around", 1, 8, {8003}, {0}},
      {"slots", 3, 8, {4, 0, 7, 5, 1}, {0, 2, 1, 0, 2}},
      {"later_row_wins", 2, 4, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
      {"capacity_one", 2, 1, {0, 1, 5}, {0, 0, 1}},
  };
  return kAppends;
}

}  // namespace

void AddStateCases(std::vector<CaseSpec>& cases) {
  for (const Append& append : Appends()) {
    for (const DType dtype :
         {DType::kF32, DType::kF16, DType::kBF16, DType::kI32, DType::kQ8_0, DType::kQ4_0}) {
      cases.push_back(
          {fmt::format("state_append/{}_{}", append.name, NameOf(dtype)), OpKind::kStateAppend,
           [&append, dtype](uint64_t seed) {
             CaseBuilder b(seed, static_cast<int64_t>(append.pos.size()));
             // Whole numbers: any dtype without blocks holds them.
             constexpr int64_t kWidth = 32;  // a block
             const TensorType state(dtype, {append.slots, append.capacity, 3, kWidth});
             const TensorType rows(dtype, {kT, 3, kWidth});
             std::vector<double> values;
             for (int64_t n = rows.ElementsAt(b.extents()); n > 0; --n) {
               values.push_back(static_cast<double>(b.random().Int(-500, 500)));
             }
             const ValueId before = b.State("state", state, -100, 100);
             const ValueId fresh =
                 dtype == DType::kI32
                     ? b.Ints("rows", rows, std::vector<int32_t>(values.begin(), values.end()))
                     : b.Floats("rows", rows, values);
             const ValueId pos = b.Ints("pos", I({kT}), append.pos);
             const ValueId slot = b.Ints("slot", I({kT}), append.slot);
             return OneOp(std::move(b), OpKind::kStateAppend, {before, fresh, pos, slot},
                          OpAttrs(OpKind::kStateAppend), ToleranceClass::kExact);
           }});
    }
  }
}

}  // namespace rullama::conformance
