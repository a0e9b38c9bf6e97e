#include "core/reference/tensor.h"

#include <rullama/sdk/cache_rows.h>
#include <rullama/sdk/half.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/check.h"
#include "core/gguf/dequantize.h"

namespace rullama::reference {
namespace {

template <typename T>
T LoadAs(std::span<const std::byte> bytes, int64_t index) {
  T value;
  std::memcpy(&value, bytes.data() + static_cast<size_t>(index) * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
void StoreAs(std::span<std::byte> bytes, int64_t index, T value) {
  std::memcpy(bytes.data() + static_cast<size_t>(index) * sizeof(T), &value, sizeof(T));
}

int64_t LoadInteger(DType dtype, std::span<const std::byte> bytes, int64_t index) {
  switch (dtype) {
    case DType::kI8:
      return LoadAs<int8_t>(bytes, index);
    case DType::kI16:
      return LoadAs<int16_t>(bytes, index);
    case DType::kI32:
      return LoadAs<int32_t>(bytes, index);
    default:
      return LoadAs<int64_t>(bytes, index);
  }
}

// Encodes elements of a block type of caches.
void PackBlocks(std::span<const double> values, DType dtype, std::span<std::byte> bytes) {
  RL_CHECK(sdk::IsBlockCacheType(dtype));
  RL_CHECK(values.size() % sdk::kCacheBlock == 0);
  std::vector<float> floats(values.size());
  std::ranges::transform(values, floats.begin(),
                         [](double value) { return static_cast<float>(value); });
  sdk::QuantizeCacheRow(dtype, floats.data(), floats.size(), bytes.data());
}

}  // namespace

int64_t Tensor::elements() const {
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  return count;
}

int64_t Tensor::row_elements() const {
  int64_t count = 1;
  for (size_t axis = 1; axis < dims.size(); ++axis) count *= dims[axis];
  return count;
}

Tensor Tensor::F32(std::vector<int64_t> dims, std::vector<double> values) {
  Tensor tensor;
  tensor.dims = std::move(dims);
  tensor.f = std::move(values);
  return tensor;
}

Tensor Tensor::I32(std::vector<int64_t> dims, const std::vector<int32_t>& values) {
  Tensor tensor;
  tensor.dtype = DType::kI32;
  tensor.dims = std::move(dims);
  tensor.i.assign(values.begin(), values.end());
  return tensor;
}

bool IsInteger(DType dtype) {
  return dtype == DType::kI8 || dtype == DType::kI16 || dtype == DType::kI32 ||
         dtype == DType::kI64;
}

std::vector<int64_t> DimsAt(const TensorType& type, const Extents& extents) {
  std::vector<int64_t> dims;
  dims.reserve(static_cast<size_t>(type.rank));
  for (int axis = 0; axis < type.rank; ++axis) dims.push_back(type.dim(axis).At(extents));
  return dims;
}

Tensor MakeZeros(DType dtype, std::vector<int64_t> dims) {
  Tensor tensor;
  tensor.dtype = dtype;
  tensor.dims = std::move(dims);
  const auto count = static_cast<size_t>(tensor.elements());
  if (IsInteger(dtype)) {
    tensor.i.assign(count, 0);
  } else {
    tensor.f.assign(count, 0.0);
  }
  return tensor;
}

double RoundTo(DType dtype, double value) {
  switch (dtype) {
    case DType::kF16:
      return HalfToFloat(FloatToHalf(static_cast<float>(value)));
    case DType::kBF16:
      return BFloat16ToFloat(FloatToBFloat16(static_cast<float>(value)));
    case DType::kF32:
      return static_cast<float>(value);
    default:
      return value;
  }
}

void RoundAll(DType dtype, std::span<double> values) {
  if (!sdk::IsBlockCacheType(dtype)) {
    for (double& value : values) value = RoundTo(dtype, value);
    return;
  }
  std::vector<std::byte> bytes(static_cast<size_t>(RowBytes(dtype, values.size())));
  PackBlocks(values, dtype, bytes);
  std::vector<float> decoded(values.size());
  const Status status = Dequantize(dtype, bytes, decoded);
  RL_CHECK(status.has_value());
  std::ranges::copy(decoded, values.begin());
}

Status ReadFloats(const Tensor& tensor, int64_t first, std::span<double> out) {
  RL_CHECK(first >= 0 && first + static_cast<int64_t>(out.size()) <= tensor.elements());
  if (!tensor.f.empty()) {
    std::copy_n(tensor.f.begin() + static_cast<std::ptrdiff_t>(first), out.size(), out.begin());
    return OkStatus();
  }
  if (!tensor.i.empty()) {
    std::copy_n(tensor.i.begin() + static_cast<std::ptrdiff_t>(first), out.size(), out.begin());
    return OkStatus();
  }
  if (out.empty()) return OkStatus();
  if (tensor.dtype == DType::kF64) {  // Dequantize() would round to float
    for (size_t j = 0; j < out.size(); ++j) {
      out[j] = LoadAs<double>(tensor.packed, first + static_cast<int64_t>(j));
    }
    return OkStatus();
  }
  const uint64_t begin = RowBytes(tensor.dtype, static_cast<uint64_t>(first));
  const uint64_t size = RowBytes(tensor.dtype, out.size());
  RL_CHECK(begin + size <= tensor.packed.size());
  std::vector<float> decoded(out.size());
  RL_RETURN_IF_ERROR(Dequantize(
      tensor.dtype, tensor.packed.subspan(static_cast<size_t>(begin), static_cast<size_t>(size)),
      decoded));
  std::copy(decoded.begin(), decoded.end(), out.begin());
  return OkStatus();
}

int64_t ReadInt(const Tensor& tensor, int64_t index) {
  if (tensor.i.empty()) return LoadInteger(tensor.dtype, tensor.packed, index);
  return tensor.i[static_cast<size_t>(index)];
}

Result<Tensor> Unpack(const Tensor& tensor) {
  if (tensor.packed.empty()) return tensor;
  const uint64_t expected = RowBytes(tensor.dtype, static_cast<uint64_t>(tensor.elements()));
  if (tensor.packed.size() != expected) {
    return MakeError(ErrorKind::kRuntime, "ref.size",
                     "a {} tensor of {} elements has {} bytes, "
                     "expected {}",
                     NameOf(tensor.dtype), tensor.elements(), tensor.packed.size(), expected);
  }
  Tensor result = MakeZeros(tensor.dtype, tensor.dims);
  if (IsInteger(tensor.dtype)) {
    for (size_t j = 0; j < result.i.size(); ++j) {
      result.i[j] = LoadInteger(tensor.dtype, tensor.packed, static_cast<int64_t>(j));
    }
    return result;
  }
  RL_RETURN_IF_ERROR(ReadFloats(tensor, 0, result.f));
  return result;
}

void PackElements(const Tensor& tensor, int64_t first, int64_t count, DType dtype, int64_t at,
                  std::span<std::byte> bytes) {
  RL_CHECK(first >= 0 && count >= 0 && first + count <= tensor.elements());
  RL_CHECK(RowBytes(dtype, static_cast<uint64_t>(at + count)) <= bytes.size());
  if (IsBlockType(dtype)) {
    PackBlocks(std::span(tensor.f).subspan(static_cast<size_t>(first), static_cast<size_t>(count)),
               dtype,
               bytes.subspan(static_cast<size_t>(RowBytes(dtype, static_cast<uint64_t>(at)))));
    return;
  }
  for (int64_t j = 0; j < count; ++j) {
    const auto from = static_cast<size_t>(first + j);
    switch (dtype) {
      case DType::kF32:
        StoreAs(bytes, at + j, static_cast<float>(tensor.f[from]));
        break;
      case DType::kF16:
        StoreAs(bytes, at + j, FloatToHalf(static_cast<float>(tensor.f[from])));
        break;
      case DType::kBF16:
        StoreAs(bytes, at + j, FloatToBFloat16(static_cast<float>(tensor.f[from])));
        break;
      case DType::kF64:
        StoreAs(bytes, at + j, tensor.f[from]);
        break;
      case DType::kI8:
        StoreAs(bytes, at + j, static_cast<int8_t>(tensor.i[from]));
        break;
      case DType::kI16:
        StoreAs(bytes, at + j, static_cast<int16_t>(tensor.i[from]));
        break;
      case DType::kI32:
        StoreAs(bytes, at + j, static_cast<int32_t>(tensor.i[from]));
        break;
      case DType::kI64:
        StoreAs(bytes, at + j, tensor.i[from]);
        break;
      default:
        RL_CHECK(!"block types are stored above");
    }
  }
}

}  // namespace rullama::reference
