#include "models/quantize/importance.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>

#include "core/base/checked_math.h"
#include "core/base/mmap_file.h"
#include "core/base/printable.h"
#include "core/gguf/gguf.h"
#include "core/gguf/loaded_tensor.h"

namespace rullama {
namespace {

constexpr std::string_view kSums = ".in_sum2", kCounts = ".counts";
constexpr size_t kMaxNameBytes = 256;
// The importance of each column of an expert that no token chose.
constexpr float kUnseenColumn = 1;

template <typename... Args>
tl::unexpected<Error> Damaged(fmt::format_string<Args...> format, Args&&... args) {
  return MakeError(ErrorKind::kModelFile, "imatrix.file",
                   "{}; expected an importance matrix of llama-imatrix",
                   fmt::format(format, std::forward<Args>(args)...));
}

// Little-endian numbers and texts from the front of a file.
class OldReader {
 public:
  explicit OldReader(std::span<const std::byte> bytes) : left_(bytes) {}

  // A count or a length, at least 0.
  Result<size_t> Size(std::string_view what) {
    int32_t value = 0;
    if (left_.size() < sizeof(value)) return Damaged("the file ends before {}", what);
    std::memcpy(&value, left_.data(), sizeof(value));
    left_ = left_.subspan(sizeof(value));
    if (value < 0) return Damaged("{} is {}", what, value);
    return static_cast<size_t>(value);
  }
  Result<std::span<const std::byte>> Bytes(size_t count, std::string_view what) {
    if (left_.size() < count) return Damaged("the file ends within {}", what);
    const auto bytes = left_.first(count);
    left_ = left_.subspan(count);
    return bytes;
  }

 private:
  std::span<const std::byte> left_;
};

Result<std::string> ReadName(OldReader& reader) {
  RL_ASSIGN_OR_RETURN(const size_t length, reader.Size("the length of a name"));
  if (length == 0 || length > kMaxNameBytes) return Damaged("a name has {} bytes", length);
  RL_ASSIGN_OR_RETURN(const auto bytes, reader.Bytes(length, "a name"));
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

std::vector<float> FloatsOf(std::span<const std::byte> bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

// The floats of a tensor of a GGUF file.
Result<std::vector<float>> FloatsOf(const GgufFile& file, const TensorInfo& tensor) {
  if (tensor.dtype != DType::kF32) {
    return Damaged("'{}' is {}, not f32", tensor.name, NameOf(tensor.dtype));
  }
  RL_ASSIGN_OR_RETURN(const LoadedTensor loaded, LoadedTensor::Load(file, tensor));
  return FloatsOf(loaded.bytes());
}

// The mean squares of a matrix: its sums over the number of activations, which each expert has.
Result<std::vector<float>> MeansOf(const GgufFile& file, const TensorInfo& sums,
                                   std::string_view name) {
  const TensorInfo* counts = file.FindTensor(fmt::format("{}{}", name, kCounts));
  if (counts == nullptr) return Damaged("'{}' has no counts", name);
  RL_ASSIGN_OR_RETURN(std::vector<float> means, FloatsOf(file, sums));
  RL_ASSIGN_OR_RETURN(const std::vector<float> experts, FloatsOf(file, *counts));
  if (experts.empty() || means.size() % experts.size() != 0) {
    return Damaged("'{}' has {} sums and {} counts", name, means.size(), experts.size());
  }
  const size_t columns = means.size() / experts.size();
  for (size_t i = 0; i < means.size(); ++i) {
    const float count = experts[i / columns];
    means[i] = count > 0 ? means[i] / count : kUnseenColumn;
  }
  return means;
}

}  // namespace

Status Importance::Add(std::string name, std::vector<float> columns) {
  for (const float value : columns) {
    if (value >= 0 && std::isfinite(value)) continue;
    return Damaged("'{}' has the mean square {}", Printable(name, kMaxNameBytes), value);
  }
  columns_[std::move(name)] = std::move(columns);
  return OkStatus();
}

Result<Importance> Importance::ParseOld(std::span<const std::byte> bytes) {
  OldReader reader(bytes);
  Importance importance;
  RL_ASSIGN_OR_RETURN(const size_t count, reader.Size("the number of matrices"));
  if (count == 0) return Damaged("the file has no matrices");
  for (size_t i = 0; i < count; ++i) {
    RL_ASSIGN_OR_RETURN(std::string name, ReadName(reader));
    RL_ASSIGN_OR_RETURN(const size_t calls, reader.Size("a number of calls"));
    RL_ASSIGN_OR_RETURN(const size_t columns, reader.Size("a number of columns"));
    const auto size = CheckedMul(columns, sizeof(float));
    if (columns == 0 || !size) return Damaged("a matrix has {} columns", columns);
    RL_ASSIGN_OR_RETURN(const auto values, reader.Bytes(*size, "the columns of a matrix"));
    std::vector<float> means = FloatsOf(values);
    // Means are stored times the calls.
    for (float& mean : means) mean /= static_cast<float>(calls == 0 ? 1 : calls);
    RL_RETURN_IF_ERROR(importance.Add(std::move(name), std::move(means)));
  }
  return importance;
}

Result<Importance> Importance::Read(const std::filesystem::path& path) {
  RL_ASSIGN_OR_RETURN(const MmapFile bytes, MmapFile::Open(path));
  constexpr std::string_view kMagic = "GGUF";
  const auto data = bytes.bytes();
  if (data.size() < kMagic.size() || std::memcmp(data.data(), kMagic.data(), kMagic.size()) != 0) {
    return ParseOld(data);
  }
  RL_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Open(path));
  Importance importance;
  for (const TensorInfo& tensor : file.tensors()) {
    std::string_view name = tensor.name;
    if (!name.ends_with(kSums)) continue;
    name.remove_suffix(kSums.size());
    RL_ASSIGN_OR_RETURN(std::vector<float> means, MeansOf(file, tensor, name));
    RL_RETURN_IF_ERROR(importance.Add(std::string(name), std::move(means)));
  }
  if (importance.size() == 0) return Damaged("no tensor is called 'NAME{}'", kSums);
  return importance;
}

const std::vector<float>* Importance::Find(std::string_view tensor) const {
  const auto found = columns_.find(tensor);
  return found == columns_.end() ? nullptr : &found->second;
}

size_t Importance::UnseenExperts(std::span<const float> columns, size_t row) {
  size_t unseen = 0;
  for (size_t first = 0; first < columns.size(); first += row) {
    const auto expert = columns.subspan(first, row);
    const auto is = [&](float value) {
      return std::ranges::all_of(expert, [=](float column) { return column == value; });
    };
    if (is(kUnseenColumn) || is(0)) ++unseen;
  }
  return unseen;
}

}  // namespace rullama
