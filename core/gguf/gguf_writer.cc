#include "core/gguf/gguf_writer.h"

#include <bit>
#include <limits>
#include <utility>

#include "core/base/checked_math.h"
#include "core/base/utf8.h"

namespace rullama {
namespace {

constexpr uint32_t kWrittenVersion = 3;
constexpr std::string_view kAlignmentKey = "general.alignment";

void PutBytes(std::span<const std::byte> bytes, std::vector<std::byte>& out) {
  out.insert(out.end(), bytes.begin(), bytes.end());
}

template <typename T>
void PutNumber(T value, std::vector<std::byte>& out) {
  PutBytes(std::as_bytes(std::span(&value, 1)), out);
}

void PutString(std::string_view text, std::vector<std::byte>& out) {
  PutNumber<uint64_t>(text.size(), out);
  PutBytes(std::as_bytes(std::span(text)), out);
}

bool IsName(std::string_view name, size_t max_bytes) {
  return !name.empty() && name.size() <= max_bytes && name.find('\0') == name.npos &&
         !FindInvalidUtf8(name);
}

}  // namespace

GgufValue GgufWriter::Scalar(GgufType type, std::span<const std::byte> bytes) {
  return {type, type, 1, bytes};
}

GgufValue GgufWriter::Array(GgufType element, uint64_t count, std::span<const std::byte> bytes) {
  return {GgufType::kArray, element, count, bytes};
}

void GgufWriter::PackString(std::string_view text, std::vector<std::byte>& packed) {
  PutString(text, packed);
}

Status GgufWriter::SetRaw(std::string_view key, const GgufValue& value) {
  if (!IsName(key, kGgufMaxKeyBytes)) {
    return MakeError(
        ErrorKind::kRuntime, "gguf.write_key",
        "found a metadata key of {} bytes, expected 1 to {} bytes of UTF-8 without NUL", key.size(),
        kGgufMaxKeyBytes);
  }
  if (key == kAlignmentKey) {
    const auto alignment =
        value.type == GgufType::kU32 ? IntegerAt<uint32_t>(value, 0) : std::nullopt;
    if (!alignment || !IsGgufAlignment(*alignment)) {
      return MakeError(ErrorKind::kRuntime, "gguf.write_key",
                       "general.alignment: found {}, expected a u32 power of two from {} to {}",
                       Describe(value), kGgufMinAlignment, kGgufMaxAlignment);
    }
    alignment_ = *alignment;
  }
  Entry entry{std::string(key),
              value.type,
              value.element_type,
              value.count,
              {value.bytes.begin(), value.bytes.end()}};
  const auto [found, inserted] = entry_index_.try_emplace(entry.key, entries_.size());
  if (inserted) {
    entries_.push_back(std::move(entry));
  } else {
    entries_[found->second] = std::move(entry);
  }
  return OkStatus();
}

void GgufWriter::Remove(std::string_view key) {
  const auto found = entry_index_.find(std::string(key));
  if (found == entry_index_.end()) return;
  const size_t removed = found->second;
  entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(removed));
  entry_index_.erase(found);
  for (auto& [name, index] : entry_index_) index -= index > removed ? 1 : 0;
  if (key == kAlignmentKey) alignment_ = kGgufDefaultAlignment;
}

Status GgufWriter::AddTensor(std::string_view name, DType dtype, std::span<const uint64_t> dims) {
  if (!IsName(name, kGgufMaxTensorNameBytes)) {
    return MakeError(ErrorKind::kRuntime, "gguf.write_tensor",
                     "found a tensor name of {} bytes, expected 1 to {} bytes of UTF-8 without NUL",
                     name.size(), kGgufMaxTensorNameBytes);
  }
  if (tensor_index_.contains(std::string(name))) {
    return MakeError(ErrorKind::kRuntime, "gguf.write_tensor",
                     "tensor '{}' is declared twice, expected once", name);
  }
  const DTypeInfo& info = InfoOf(dtype);
  constexpr auto kMaxElements = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  bool valid = !dims.empty() && dims.size() <= kGgufMaxRank && dims[0] % info.block_elements == 0;
  uint64_t elements = 1;
  for (const uint64_t dim : dims) {
    const auto product = CheckedMul(elements, dim);
    valid = valid && product && *product > 0 && *product <= kMaxElements;
    elements = product.value_or(0);
  }
  const auto bytes = CheckedMul<uint64_t>(elements / info.block_elements, info.block_bytes);
  if (!valid || !bytes) {
    return MakeError(ErrorKind::kRuntime, "gguf.write_tensor",
                     "tensor '{}' of type {} has dimensions [{}], expected 1 to {} positive "
                     "numbers, the first a multiple of {}",
                     name, info.name, fmt::join(dims, ", "), kGgufMaxRank, info.block_elements);
  }
  tensor_index_.emplace(name, tensors_.size());
  tensors_.push_back({std::string(name), dtype, {dims.begin(), dims.end()}, *bytes});
  return OkStatus();
}

Result<std::vector<std::byte>> GgufWriter::EncodeHeader() const {
  std::vector<std::byte> out;
  PutNumber(kGgufMagic, out);
  PutNumber(kWrittenVersion, out);
  PutNumber<uint64_t>(tensors_.size(), out);
  PutNumber<uint64_t>(entries_.size(), out);
  for (const Entry& entry : entries_) {
    PutString(entry.key, out);
    PutNumber(entry.type, out);
    if (entry.type == GgufType::kArray) {
      PutNumber(entry.element_type, out);
      PutNumber(entry.count, out);
    } else if (entry.type == GgufType::kString) {
      PutNumber<uint64_t>(entry.bytes.size(), out);
    }
    PutBytes(entry.bytes, out);
  }
  uint64_t offset = 0;
  for (const Tensor& tensor : tensors_) {
    PutString(tensor.name, out);
    PutNumber(static_cast<uint32_t>(tensor.dims.size()), out);
    for (const uint64_t dim : tensor.dims) PutNumber(dim, out);
    PutNumber(static_cast<uint32_t>(tensor.dtype), out);
    PutNumber(offset, out);
    const auto end = CheckedAdd(offset, tensor.bytes);
    const auto next = end ? CheckedAlignUp<uint64_t>(*end, alignment_) : std::nullopt;
    if (!next) {
      return MakeError(ErrorKind::kRuntime, "gguf.write_size",
                       "the tensors up to '{}' add up to more than 2^64 bytes", tensor.name);
    }
    offset = *next;
  }
  out.resize((out.size() + alignment_ - 1) / alignment_ * alignment_);
  return out;
}

Result<GgufOutput> GgufWriter::Begin(const std::filesystem::path& path) const {
  RL_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  return Begin(std::move(file));
}

Result<GgufOutput> GgufWriter::Begin(AtomicFile file) const {
  RL_ASSIGN_OR_RETURN(const std::vector<std::byte> header, EncodeHeader());
  RL_RETURN_IF_ERROR(file.Append(header));
  std::vector<GgufOutput::Tensor> tensors;
  tensors.reserve(tensors_.size());
  for (const Tensor& tensor : tensors_) tensors.push_back({tensor.name, tensor.bytes});
  return GgufOutput(std::move(file), std::move(tensors), alignment_);
}

Status GgufOutput::Append(std::span<const std::byte> bytes) {
  if (bytes.empty()) return OkStatus();
  if (current_ == tensors_.size()) {
    return MakeError(ErrorKind::kRuntime, "gguf.write_order",
                     "found {} more bytes, but all {} tensors are complete", bytes.size(),
                     tensors_.size());
  }
  const Tensor& tensor = tensors_[current_];
  if (bytes.size() > tensor.bytes - written_) {
    return MakeError(ErrorKind::kRuntime, "gguf.write_order",
                     "found {} bytes for tensor '{}', expected at most {} more", bytes.size(),
                     tensor.name, tensor.bytes - written_);
  }
  RL_RETURN_IF_ERROR(file_.Append(bytes));
  written_ += bytes.size();
  if (written_ < tensor.bytes) return OkStatus();
  // The last tensor is padded as well, as other writers do.
  const std::vector<std::byte> padding((alignment_ - file_.size() % alignment_) % alignment_);
  RL_RETURN_IF_ERROR(file_.Append(padding));
  ++current_;
  written_ = 0;
  return OkStatus();
}

Status GgufOutput::Finish() {
  if (current_ < tensors_.size()) {
    return MakeError(ErrorKind::kRuntime, "gguf.write_order",
                     "tensor '{}' has {} of {} bytes, expected all data before the end",
                     tensors_[current_].name, written_, tensors_[current_].bytes);
  }
  return file_.Commit();
}

}  // namespace rullama
