#include "core/ir/types.h"

#include <fmt/format.h>

namespace rullama {

int64_t TensorType::ElementsAt(const Extents& extents) const {
  int64_t elements = 1;
  for (int axis = 0; axis < rank; ++axis) elements *= dim(axis).At(extents);
  return elements;
}

uint64_t TensorType::BytesAt(const Extents& extents) const {
  return RowBytes(dtype, static_cast<uint64_t>(ElementsAt(extents)));
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
