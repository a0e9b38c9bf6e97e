#include "core/ir/types.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/checked_math.h"

namespace rullama {
namespace {

// The largest coefficient of a symbol: far above any use, small enough for sums to stay in i32.
constexpr int32_t kMaxCoefficient = 1 << 14;

}  // namespace

int64_t TensorType::ElementsAt(const Extents& extents) const {
  int64_t elements = 1;
  for (int axis = 0; axis < rank; ++axis) elements *= dim(axis).At(extents);
  return elements;
}

uint64_t TensorType::BytesAt(const Extents& extents) const {
  return RowBytes(dtype, static_cast<uint64_t>(ElementsAt(extents)));
}

Status CheckType(const TensorType& type, const Extents& extents) {
  const DTypeInfo* info = FindDType(static_cast<uint32_t>(type.dtype));
  if (info == nullptr) {
    return MakeError(ErrorKind::kRuntime, "ir.type", "unknown dtype {}",
                     static_cast<uint32_t>(type.dtype));
  }
  if (type.rank < 1 || type.rank > kMaxRank) {
    return MakeError(ErrorKind::kRuntime, "ir.type", "rank {} is outside 1 to {}", type.rank,
                     kMaxRank);
  }
  int64_t elements = 1;
  for (int axis = 0; axis < kMaxRank; ++axis) {
    const Dim& dim = type.dim(axis);
    if (axis >= type.rank) {
      if (dim == Dim()) continue;
      return MakeError(ErrorKind::kRuntime, "ir.type", "dimension {} of a rank {} type is not zero",
                       axis, type.rank);
    }
    const bool bounded = dim.constant >= 0 && dim.constant <= kMaxElements && dim.t >= 0 &&
                         dim.t <= kMaxCoefficient && dim.r >= 0 && dim.r <= kMaxCoefficient;
    if (!bounded || dim == Dim()) {
      return MakeError(ErrorKind::kRuntime, "ir.type",
                       "dimension {} of {} is not a positive size within bounds", axis,
                       ToString(type));
    }
    const auto product = CheckedMul(elements, std::max<int64_t>(dim.At(extents), 1));
    if (!product || *product > kMaxElements) {
      return MakeError(ErrorKind::kRuntime, "ir.type", "{} has more than 2^48 elements",
                       ToString(type));
    }
    elements = *product;
  }
  if (info->block_elements > 1 &&
      (!type.last().IsConstant() || type.last().constant % info->block_elements != 0)) {
    return MakeError(ErrorKind::kRuntime, "ir.type",
                     "the last dimension of {} is not a constant multiple of its block length {}",
                     ToString(type), info->block_elements);
  }
  return OkStatus();
}

std::string ToString(const Dim& dim) {
  std::string text;
  const auto add_symbol = [&](int32_t coefficient, char symbol) {
    if (coefficient == 0) return;
    if (!text.empty()) text += '+';
    text += coefficient == 1 ? std::string(1, symbol) : fmt::format("{}{}", coefficient, symbol);
  };
  add_symbol(dim.t, 'T');
  add_symbol(dim.r, 'R');
  if (dim.constant != 0 || text.empty()) {
    text += fmt::format("{}{}", text.empty() ? "" : "+", dim.constant);
  }
  return text;
}

std::string ToString(const TensorType& type) {
  std::string text = fmt::format("{}[", NameOf(type.dtype));
  for (int axis = 0; axis < type.rank && axis < kMaxRank; ++axis) {
    text += fmt::format("{}{}", axis == 0 ? "" : ",", ToString(type.dim(axis)));
  }
  return text + "]";
}

}  // namespace rullama
