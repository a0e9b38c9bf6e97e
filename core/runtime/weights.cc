#include "core/runtime/weights.h"

#include <algorithm>
#include <utility>

#include "core/base/checked_math.h"

namespace rullama {
namespace {

// The type of a tensor in numpy order; GGUF lists the fastest dimension first.
TensorType TypeOf(const TensorInfo& info) {
  TensorType type;
  type.dtype = info.dtype;
  type.rank = static_cast<int>(info.rank);
  for (uint32_t axis = 0; axis < info.rank; ++axis) {
    type.dim(type.rank - 1 - static_cast<int>(axis)) = static_cast<int64_t>(info.dims[axis]);
  }
  return type;
}

// The tensor as a matrix of this many columns, if they are its last dimensions.
TensorType AsMatrix(const TensorType& full, const Dim& columns) {
  const DTypeInfo* info = FindDType(static_cast<uint32_t>(full.dtype));
  if (info == nullptr || info->block_elements > 1) return full;
  TensorType matrix(full.dtype, {1, 1});
  for (int axis = full.rank - 1; axis >= 0; --axis) {
    Dim& merged = matrix.dim(matrix.dim(1) == columns ? 0 : 1);
    merged.constant *= full.dim(axis).constant;
  }
  return matrix;
}

struct ByteRange {
  uint64_t first;
  uint64_t count;
};

// The bytes of the rows of a constant among the `bytes` of its tensor.
Result<ByteRange> SliceRows(const Value& constant, const TensorType& tensor, uint64_t bytes) {
  const TensorType& wanted = constant.type;
  const bool merges = wanted.rank == 2 && tensor.rank > wanted.rank;
  const TensorType full = merges ? AsMatrix(tensor, wanted.last()) : tensor;
  TensorType expected = full;
  if (expected.rank > 0) expected.dim(0) = wanted.dim(0);
  const int64_t rows = wanted.dim(0).constant;
  const bool fits = constant.first_row >= 0 && rows >= 0 && full.rank > 0 &&
                    rows <= full.dim(0).constant - constant.first_row;
  if (wanted != expected || !fits) {
    return MakeError(ErrorKind::kModelFile, "model.tensor_shape",
                     "tensor '{}' is {}, the model wants rows {} to {} as {}", constant.source,
                     ToString(tensor), constant.first_row, constant.first_row + rows,
                     ToString(wanted));
  }
  const uint64_t row_bytes = bytes / static_cast<uint64_t>(full.dim(0).constant);
  return ByteRange{static_cast<uint64_t>(constant.first_row) * row_bytes,
                   static_cast<uint64_t>(rows) * row_bytes};
}

}  // namespace

Status WeightSource::Copy(const Value& constant, uint64_t first, std::span<std::byte> to) const {
  RL_ASSIGN_OR_RETURN(const auto bytes, Bytes(constant));
  std::ranges::copy(bytes.subspan(static_cast<size_t>(first), to.size()), to.begin());
  Release(bytes);
  return OkStatus();
}

void GgufWeights::AddConstant(std::string name, TensorType type, std::vector<std::byte> bytes) {
  constants_[std::move(name)] = {.type = type, .owned = std::move(bytes), .borrowed = {}};
}

void GgufWeights::AddBorrowedConstant(std::string name, TensorType type,
                                      std::span<const std::byte> bytes) {
  constants_[std::move(name)] = {.type = type, .owned = {}, .borrowed = bytes};
}

void GgufWeights::AddFile(std::string prefix, const GgufFile& file) {
  others_.push_back({std::move(prefix), &file});
}

Result<GgufWeights::Place> GgufWeights::Find(const Value& constant) const {
  if (const auto found = constants_.find(constant.source); found != constants_.end()) {
    const AddedConstant& added = found->second;
    RL_ASSIGN_OR_RETURN(const ByteRange range,
                        SliceRows(constant, added.type, added.bytes().size()));
    return Place{.added = added.bytes(), .first = range.first, .count = range.count};
  }
  const GgufFile* file = &file_;
  std::string_view name = constant.source;
  for (const OtherFile& other : others_) {
    if (!name.starts_with(other.prefix)) continue;
    file = other.file;
    name.remove_prefix(other.prefix.size());
    break;
  }
  const TensorInfo* info = file->FindTensor(name);
  if (info == nullptr) {
    return MakeError(ErrorKind::kModelFile, "model.missing_tensor",
                     "the file has no tensor '{}' ({})", constant.source, ToString(constant.type));
  }
  RL_ASSIGN_OR_RETURN(const ByteRange range, SliceRows(constant, TypeOf(*info), info->bytes));
  return Place{.file = file, .tensor = info, .first = range.first, .count = range.count};
}

Result<std::span<const std::byte>> GgufWeights::Bytes(const Value& constant) const {
  RL_ASSIGN_OR_RETURN(const Place place, Find(constant));
  if (place.file != nullptr) return place.file->Load(*place.tensor, place.first, place.count);
  return place.added.subspan(static_cast<size_t>(place.first), static_cast<size_t>(place.count));
}

Status GgufWeights::Check(const Value& constant) const {
  return Find(constant).map([](const Place&) {});
}

Status GgufWeights::Copy(const Value& constant, uint64_t first, std::span<std::byte> to) const {
  RL_ASSIGN_OR_RETURN(const Place place, Find(constant));
  if (place.file != nullptr) return place.file->Copy(*place.tensor, place.first + first, to);
  std::ranges::copy(place.added.subspan(static_cast<size_t>(place.first + first), to.size()),
                    to.begin());
  return OkStatus();
}

bool GgufWeights::IsReadByRow(const Value& constant) const {
  const auto place = Find(constant);
  return place && place->file != nullptr && place->file->is_read_by_ranges() &&
         place->tensor->bytes > kGgufSmallTensorBytes;
}

void GgufWeights::Release(std::span<const std::byte> bytes) const {
  file_.Release(bytes);
  for (const OtherFile& other : others_) other.file->Release(bytes);
}

}  // namespace rullama
