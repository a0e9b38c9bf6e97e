#include "core/gguf/check_numbers.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <vector>

#include "core/gguf/dequantize.h"
#include "core/gguf/loaded_tensor.h"

namespace rullama {
namespace {

// Divisors of frequencies. Those that do not rotate have 1e30 in files of every converter.
constexpr std::string_view kRopeFactors = "rope_freqs.weight";

// Decoded at once; a multiple of every block length.
constexpr uint64_t kPieceValues = uint64_t{1} << 16;

void Count(float value, uint64_t element, float most, TensorNumbers& numbers) {
  const float magnitude = std::fabs(value);
  if (magnitude <= most) {
    numbers.largest = std::max(numbers.largest, magnitude);
    return;
  }
  if (numbers.usual()) numbers.first = element;
  if (std::isnan(value)) {
    ++numbers.nan;
  } else if (std::isinf(value)) {
    ++numbers.infinite;
  } else {
    ++numbers.too_large;
    numbers.largest = std::max(numbers.largest, magnitude);
  }
}

}  // namespace

Result<TensorNumbers> NumbersOf(const GgufFile& file, const TensorInfo& tensor) {
  RL_RETURN_IF_ERROR(file.CheckUnchanged());
  const float most =
      tensor.name == kRopeFactors ? std::numeric_limits<float>::max() : kLargestUsualWeight;
  TensorNumbers numbers;
  std::vector<float> values;
  for (uint64_t first = 0; first < tensor.elements(); first += kPieceValues) {
    values.resize(static_cast<size_t>(std::min(kPieceValues, tensor.elements() - first)));
    RL_ASSIGN_OR_RETURN(const LoadedTensor piece,
                        LoadedTensor::Load(file, tensor, RowBytes(tensor.dtype, first),
                                           RowBytes(tensor.dtype, values.size())));
    RL_RETURN_IF_ERROR(Dequantize(tensor.dtype, piece.bytes(), values));
    for (size_t i = 0; i < values.size(); ++i) Count(values[i], first + i, most, numbers);
  }
  return numbers;
}

}  // namespace rullama
