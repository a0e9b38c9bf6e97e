// Access to operands and attributes with checks, shared by the infer functions of all ops. Internal
// to core/ir.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/ir/ops.h"
#include "core/ir/types.h"

namespace rullama::infer_internal {

using Types = std::vector<TensorType>;

// The operands and attributes of the op being inferred, with the checks that most ops share. A
// check that fails records the first error; infer functions return early where it would be unsafe
// to continue.
class Context {
 public:
  Context(const OpInfo& info, const OpAttrs& attrs, std::span<const TensorType* const> operands)
      : info_(info), attrs_(attrs), operands_(operands) {}

  [[nodiscard]] const TensorType& operand(size_t i) const { return *operands_[i]; }
  [[nodiscard]] bool has(size_t i) const { return operands_[i] != nullptr; }
  template <typename Attrs>
  [[nodiscard]] const Attrs& attrs() const {
    return *static_cast<const Attrs*>(attrs_.data());
  }
  [[nodiscard]] bool ok() const { return !error_.has_value(); }
  [[nodiscard]] Result<Types> Finish(Types types) && {
    if (error_) return tl::unexpected<Error>(*std::move(error_));
    return types;
  }

  template <typename... Args>
  void Fail(fmt::format_string<Args...> format, Args&&... args) {
    if (error_) return;
    error_ =
        Error{ErrorKind::kRuntime, "ir.type",
              fmt::format("{}: {}", info_.name, fmt::format(format, std::forward<Args>(args)...))};
  }

  // The operand has the dtype / rank / type; true if so (or absent and optional).
  bool WantDType(size_t i, DType dtype) {
    if (!has(i) || operand(i).dtype == dtype) return true;
    Fail("operand {} is {}, expected {}", info_.operands[i].name, ToString(operand(i)),
         NameOf(dtype));
    return false;
  }
  bool WantRank(size_t i, int rank) {
    if (!has(i) || operand(i).rank == rank) return true;
    Fail("operand {} is {}, expected rank {}", info_.operands[i].name, ToString(operand(i)), rank);
    return false;
  }
  bool WantLeastRank(size_t i, int rank) {
    if (operand(i).rank >= rank) return true;
    Fail("operand {} is {}, expected rank {} or more", info_.operands[i].name, ToString(operand(i)),
         rank);
    return false;
  }
  bool WantType(size_t i, const TensorType& type) {
    if (!has(i) || operand(i) == type) return true;
    Fail("operand {} is {}, expected {}", info_.operands[i].name, ToString(operand(i)),
         ToString(type));
    return false;
  }
  bool WantPlain(size_t i) {
    if (!IsBlockType(operand(i).dtype)) return true;
    Fail("operand {} is {}, expected an element type without blocks", info_.operands[i].name,
         ToString(operand(i)));
    return false;
  }
  // i32 [rows].
  bool WantIndex(size_t i, const Dim& rows) { return WantType(i, {DType::kI32, {rows}}); }
  // f32 [n].
  bool WantVector(size_t i, const Dim& n) { return WantType(i, {DType::kF32, {n}}); }
  // f32 of rank 2.
  bool WantMatrix(size_t i) { return WantDType(i, DType::kF32) && WantRank(i, 2); }

 private:
  const OpInfo& info_;
  const OpAttrs& attrs_;
  std::span<const TensorType* const> operands_;
  std::optional<Error> error_;
};

// One function for each op; an op without one fails to link.
#define RL_OP(id, Name, name, operands, results, attributes, traits, doc) \
  Types Infer##Name(Context& c);
#include <rullama/abi/ops.def>

inline bool IsFloat(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

inline bool WantEnumerator(Context& c, std::string_view enum_name, int32_t value) {
  if (!EnumeratorName(enum_name, value).empty()) return true;
  c.Fail("{} is not a value of {}", value, enum_name);
  return false;
}

inline bool WantEps(Context& c, float eps) {
  if (std::isfinite(eps) && eps >= 0) return true;
  c.Fail("eps is {}, expected a finite number >= 0", eps);
  return false;
}

// A weight [n, k] (transposed) or [k, n]; n, or nothing after an error.
inline std::optional<Dim> WantWeight(Context& c, size_t i, const Dim& k, bool transposed) {
  if (!c.WantRank(i, 2)) return std::nullopt;
  const TensorType& weight = c.operand(i);
  const Dim& inner = transposed ? weight.dim(1) : weight.dim(0);
  if (inner != k || !weight.dim(0).IsConstant() || !weight.dim(1).IsConstant()) {
    c.Fail("weight {} does not fit {} input columns", ToString(weight), ToString(k));
    return std::nullopt;
  }
  return transposed ? weight.dim(0) : weight.dim(1);
}

// The number of groups of `group` rows of an operand, or nothing after an error: its rows have to
// be a multiple, whatever T and R are.
inline std::optional<Dim> WantGroupsOfRows(Context& c, size_t i, int64_t group) {
  const Dim& rows = c.operand(i).rows();
  if (group >= 1 && rows.constant % group == 0 && rows.t % group == 0 && rows.r % group == 0) {
    return Dim(rows.constant / group, static_cast<int32_t>(rows.t / group),
               static_cast<int32_t>(rows.r / group));
  }
  c.Fail("the rows of {} do not divide into groups of {}", ToString(c.operand(i)), group);
  return std::nullopt;
}

// An axis of operand 0, but not its rows.
inline bool WantInnerAxis(Context& c, int axis) {
  if (axis >= 1 && axis < c.operand(0).rank) return true;
  c.Fail("axis {} is outside 1 to {}", axis, c.operand(0).rank - 1);
  return false;
}

// The result of an op along the last dimension: that of operand 0, f32 of rank 2 or more.
inline Types InferRowwise(Context& c) {
  c.WantDType(0, DType::kF32);
  c.WantLeastRank(0, 2);
  return {c.operand(0)};
}

}  // namespace rullama::infer_internal
