#include "core/gguf/gguf_parse.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>

#include "core/base/checked_math.h"
#include "core/base/utf8.h"

namespace rullama::gguf_internal {
namespace {

// Magic, version, two counts.
constexpr size_t kHeaderBytes = 24;
// The shortest entry that can be valid: length, one byte of key, type, one byte of value.
constexpr size_t kMinMetadataBytes = 8 + 1 + 4 + 1;
// The shortest tensor info: length, one byte of name, rank, one dimension, type, offset.
constexpr size_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;
// No model comes near: the largest have a few thousand tensors. Bounds what a hostile file can make
// the reader allocate (about 100 MB).
constexpr uint64_t kMaxEntries = uint64_t{1} << 20;
// Five digits in the names of files.
constexpr uint64_t kMaxSplitParts = 99999;
// Counts and lengths up to these are what real files have, so one that does not fit the file means
// that the file was cut off; a larger one means that the number itself is wrong.
constexpr uint64_t kPlausibleEntries = 4096;
constexpr uint64_t kPlausibleStringBytes = 65536;

tl::unexpected<Error> Truncated(uint64_t offset, uint64_t needed, std::string_view what,
                                uint64_t file_bytes) {
  return MakeError(ErrorKind::kModelFile, "gguf.truncated",
                   "the file ends at byte {}, but the {} at offset {} needs {} bytes; the download "
                   "is incomplete, fetch the file again",
                   file_bytes, what, offset, needed);
}

// Walks over the header; every read is checked against the end of the file, and against that of the
// bytes of it that are there.
class Cursor {
 public:
  explicit Cursor(GgufHead& head) : head_(head) {}

  [[nodiscard]] uint64_t position() const { return position_; }
  [[nodiscard]] uint64_t left() const { return size() - position_; }
  [[nodiscard]] uint64_t size() const { return head_.file_bytes; }

  template <typename T>
  Result<T> Read(std::string_view what) {
    RL_ASSIGN_OR_RETURN(const auto bytes, Take(sizeof(T), what));
    return LoadUnaligned<T>(bytes.data());
  }

  Result<std::span<const std::byte>> Take(uint64_t bytes, std::string_view what) {
    if (left() < bytes) return Truncated(position_, bytes, what, size());
    if (bytes > HeaderLeft()) return HeaderTooLong(position_, what);
    if (!Has(position_ + bytes)) return Truncated(position_, bytes, what, size());
    const auto taken =
        head_.bytes.subspan(static_cast<size_t>(position_), static_cast<size_t>(bytes));
    position_ += bytes;
    return taken;
  }

  // A u64 length and that many bytes, at most `max_bytes`.
  Result<std::span<const std::byte>> TakeString(uint64_t max_bytes, std::string_view what) {
    const uint64_t start = position_;
    RL_ASSIGN_OR_RETURN(const uint64_t length, Read<uint64_t>(what));
    if (length > max_bytes) return StringOverLimit(start, length, what, max_bytes);
    if (length > left()) return StringTooLong(start, length, what);
    return Take(length, what);
  }

  // Passes over `count` strings; the time of opening a vocabulary is spent here.
  Result<std::span<const std::byte>> TakeStrings(uint64_t count) {
    constexpr std::string_view kWhat = "string in an array";
    const uint64_t start = position_;
    const std::byte* const data = head_.bytes.data();
    uint64_t at = position_;
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t content = at + sizeof(uint64_t);
      if (size() - at < sizeof(uint64_t)) return Truncated(at, sizeof(uint64_t), kWhat, size());
      if (content > kGgufMaxHeaderBytes) return HeaderTooLong(start, "array of strings");
      if (!Has(content)) return Truncated(at, sizeof(uint64_t), kWhat, size());
      const auto length = LoadUnaligned<uint64_t>(data + at);
      if (length > kGgufMaxStringBytes) {
        return StringOverLimit(at, length, kWhat, kGgufMaxStringBytes);
      }
      if (length > size() - content) return StringTooLong(at, length, kWhat);
      at = content + length;
      if (at > kGgufMaxHeaderBytes) return HeaderTooLong(start, "array of strings");
      if (!Has(at)) return Truncated(start, at - start, kWhat, size());
    }
    position_ = at;
    return head_.bytes.subspan(static_cast<size_t>(start), static_cast<size_t>(at - start));
  }

 private:
  // Whether the bytes before `end` are there; else the head says that they are needed.
  [[nodiscard]] bool Has(uint64_t end) const {
    if (end <= head_.bytes.size()) return true;
    head_.needed = end;
    return false;
  }
  [[nodiscard]] uint64_t HeaderLeft() const {
    return kGgufMaxHeaderBytes - std::min(position_, kGgufMaxHeaderBytes);
  }
  static tl::unexpected<Error> HeaderTooLong(uint64_t at, std::string_view what) {
    return MakeError(ErrorKind::kModelFile, "gguf.header_size",
                     "the {} at offset {} ends beyond the first {} bytes of the file, expected all "
                     "metadata and the tensor table within them; the file is corrupt or hostile",
                     what, at, kGgufMaxHeaderBytes);
  }
  static tl::unexpected<Error> StringOverLimit(uint64_t at, uint64_t length, std::string_view what,
                                               uint64_t max_bytes) {
    return MakeError(ErrorKind::kModelFile, "gguf.string_length",
                     "the {} at offset {} has length {}, expected at most {}; the file is corrupt "
                     "or hostile",
                     what, at, length, max_bytes);
  }
  tl::unexpected<Error> StringTooLong(uint64_t at, uint64_t length, std::string_view what) const {
    if (length <= kPlausibleStringBytes) {
      return Truncated(at, sizeof(uint64_t) + length, what, size());
    }
    return MakeError(ErrorKind::kModelFile, "gguf.string_length",
                     "the {} at offset {} claims {} bytes, but the file has only {} bytes; the "
                     "file is corrupt or cut off, fetch it again",
                     what, at, length, size());
  }

  GgufHead& head_;
  uint64_t position_ = 0;
};

std::string_view AsText(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Why `name` cannot name an entry or a tensor, or null if it can.
const char* NameFault(std::string_view name) {
  if (name.empty()) return "is empty";
  if (name.find('\0') != std::string_view::npos) return "contains a NUL byte";
  if (FindInvalidUtf8(name)) return "is not valid UTF-8";
  return nullptr;
}

Status CheckVersion(uint32_t version) {
  if (version == 2 || version == 3) return OkStatus();
  const uint32_t swapped = __builtin_bswap32(version);
  if (swapped >= 1 && swapped <= 3) {
    return MakeError(ErrorKind::kModelFile, "gguf.version",
                     "found a big-endian GGUF file of version {}, expected little-endian; convert "
                     "the model again for a little-endian machine",
                     swapped);
  }
  return MakeError(ErrorKind::kModelFile, "gguf.version",
                   "found GGUF version {}, expected 2 or 3; {}", version,
                   version < 2 ? "convert the model again with a current converter"
                               : "a newer rullama may read it");
}

Status CheckCount(uint64_t count, uint64_t min_bytes, const Cursor& cursor, std::string_view what) {
  const bool too_many_for_file = count > cursor.left() / min_bytes;
  if (count > kMaxEntries || (too_many_for_file && count > kPlausibleEntries)) {
    return MakeError(ErrorKind::kModelFile, "gguf.count",
                     "the header claims {} {}, but a file of {} bytes holds at most {}; the file "
                     "is corrupt or cut off, fetch it again",
                     count, what, cursor.size(), std::min(kMaxEntries, cursor.left() / min_bytes));
  }
  return OkStatus();
}

Status CheckBools(std::span<const std::byte> bytes, uint64_t offset, std::string_view id) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    const auto byte = std::to_integer<unsigned>(bytes[i]);
    if (byte > 1) {
      return MakeError(ErrorKind::kModelFile, id,
                       "the bool at offset {} is {}, expected 0 or 1; the file is corrupt",
                       offset + i, byte);
    }
  }
  return OkStatus();
}

Result<GgufValue> ReadArray(Cursor& cursor) {
  const uint64_t start = cursor.position();
  RL_ASSIGN_OR_RETURN(const uint32_t element, cursor.Read<uint32_t>("element type of an array"));
  if (!IsGgufType(element) || element == static_cast<uint32_t>(GgufType::kArray)) {
    return MakeError(ErrorKind::kModelFile, "gguf.array",
                     "the array at offset {} has {} ({}), expected a scalar or string type; arrays "
                     "of arrays are not supported",
                     start, IsGgufType(element) ? "nested arrays" : "an unknown element type",
                     element);
  }
  GgufValue value;
  value.type = GgufType::kArray;
  value.element_type = static_cast<GgufType>(element);
  RL_ASSIGN_OR_RETURN(value.count, cursor.Read<uint64_t>("length of an array"));
  const bool strings = value.element_type == GgufType::kString;
  const uint64_t element_bytes = strings ? sizeof(uint64_t) : ScalarBytes(value.element_type);
  const auto bytes = CheckedMul<uint64_t>(value.count, element_bytes);
  if (!bytes) {
    return MakeError(ErrorKind::kModelFile, "gguf.array",
                     "the array at offset {} claims {} elements of type {}, more than 2^64 bytes; "
                     "the file is corrupt or hostile",
                     start, value.count, NameOf(value.element_type));
  }
  if (*bytes > cursor.left()) return Truncated(start, *bytes, "array", cursor.size());
  if (value.count > kGgufMaxArrayElements) {
    return MakeError(ErrorKind::kModelFile, "gguf.array",
                     "the array at offset {} has {} elements, expected at most {}; the file is "
                     "corrupt or hostile",
                     start, value.count, kGgufMaxArrayElements);
  }
  const uint64_t content = cursor.position();
  if (strings) {
    RL_ASSIGN_OR_RETURN(value.bytes, cursor.TakeStrings(value.count));
  } else {
    RL_ASSIGN_OR_RETURN(value.bytes, cursor.Take(*bytes, "array"));
  }
  if (value.element_type == GgufType::kBool) {
    RL_RETURN_IF_ERROR(CheckBools(value.bytes, content, "gguf.array"));
  }
  return value;
}

Result<GgufValue> ReadValue(Cursor& cursor) {
  const uint64_t start = cursor.position();
  RL_ASSIGN_OR_RETURN(const uint32_t type, cursor.Read<uint32_t>("value type"));
  if (!IsGgufType(type)) {
    return MakeError(ErrorKind::kModelFile, "gguf.value",
                     "unknown value type {} at offset {}, expected 0 to 12; the file is corrupt",
                     type, start);
  }
  GgufValue value;
  value.type = static_cast<GgufType>(type);
  if (value.type == GgufType::kArray) return ReadArray(cursor);
  if (value.type == GgufType::kString) {
    RL_ASSIGN_OR_RETURN(value.bytes, cursor.TakeString(kGgufMaxStringBytes, "string"));
    return value;
  }
  const uint64_t content = cursor.position();
  RL_ASSIGN_OR_RETURN(value.bytes, cursor.Take(ScalarBytes(value.type), NameOf(value.type)));
  if (value.type == GgufType::kBool) {
    RL_RETURN_IF_ERROR(CheckBools(value.bytes, content, "gguf.value"));
  }
  return value;
}

Result<GgufEntry> ReadEntry(Cursor& cursor) {
  const uint64_t start = cursor.position();
  RL_ASSIGN_OR_RETURN(const auto key, cursor.TakeString(kGgufMaxKeyBytes, "metadata key"));
  GgufEntry entry;
  entry.key = AsText(key);
  if (const char* fault = NameFault(entry.key)) {
    return MakeError(ErrorKind::kModelFile, "gguf.key",
                     "the metadata key at offset {} {}; the file is corrupt", start, fault);
  }
  auto value = ReadValue(cursor);
  if (!value) {
    return tl::unexpected(
        std::move(value).error().WithContext(fmt::format("metadata key '{}'", entry.key)));
  }
  entry.value = *value;
  return entry;
}

std::string SupportedTypes() {
  std::string names;
  for (const DTypeInfo& info : kDTypes) {
    if (!names.empty()) names += ' ';
    names += info.name;
  }
  return names;
}

// Reads rank, dimensions and type; computes `bytes`.
Status ReadShape(Cursor& cursor, TensorInfo& tensor) {
  RL_ASSIGN_OR_RETURN(tensor.rank, cursor.Read<uint32_t>("tensor rank"));
  if (tensor.rank < 1 || tensor.rank > kGgufMaxRank) {
    return MakeError(ErrorKind::kModelFile, "gguf.dims",
                     "found {} dimensions, expected 1 to {}; the file is corrupt", tensor.rank,
                     kGgufMaxRank);
  }
  tensor.dims.fill(1);
  // Elements are counted in signed 64-bit numbers by every consumer.
  constexpr auto kMaxElements = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  uint64_t elements = 1;
  for (uint32_t i = 0; i < tensor.rank; ++i) {
    RL_ASSIGN_OR_RETURN(tensor.dims[i], cursor.Read<uint64_t>("tensor dimension"));
    if (tensor.dims[i] == 0) {
      return MakeError(ErrorKind::kModelFile, "gguf.dims",
                       "dimension {} is 0, expected at least 1; the file is corrupt", i);
    }
    const auto product = CheckedMul<uint64_t>(elements, tensor.dims[i]);
    if (!product || *product > kMaxElements) {
      return MakeError(ErrorKind::kModelFile, "gguf.dims",
                       "the product of the dimensions {} is 2^63 or more, expected fewer elements; "
                       "the file is corrupt or hostile",
                       fmt::join(std::span(tensor.dims).first(i + 1), " x "));
    }
    elements = *product;
  }
  RL_ASSIGN_OR_RETURN(const uint32_t type, cursor.Read<uint32_t>("tensor type"));
  const DTypeInfo* info = FindDType(type);
  if (info == nullptr) {
    return MakeError(ErrorKind::kModelFile, "gguf.type",
                     "found tensor type {}, which is unknown or was removed from the format; "
                     "expected one of: {}; quantise the model again",
                     type, SupportedTypes());
  }
  tensor.dtype = info->dtype;
  if (tensor.dims[0] % info->block_elements != 0) {
    return MakeError(ErrorKind::kModelFile, "gguf.dims",
                     "the first dimension is {}, expected a multiple of {} for type {}",
                     tensor.dims[0], info->block_elements, info->name);
  }
  const auto bytes = CheckedMul<uint64_t>(elements / info->block_elements, info->block_bytes);
  if (!bytes) {
    return MakeError(ErrorKind::kModelFile, "gguf.dims",
                     "{} elements of type {} are more than 2^64 bytes; the file is corrupt or "
                     "hostile",
                     elements, info->name);
  }
  tensor.bytes = *bytes;
  return OkStatus();
}

Result<TensorInfo> ReadTensor(Cursor& cursor) {
  const uint64_t start = cursor.position();
  RL_ASSIGN_OR_RETURN(const auto name, cursor.TakeString(kGgufMaxTensorNameBytes, "tensor name"));
  TensorInfo tensor;
  tensor.name = AsText(name);
  if (const char* fault = NameFault(tensor.name)) {
    return MakeError(ErrorKind::kModelFile, "gguf.tensor_name",
                     "the tensor name at offset {} {}; the file is corrupt", start, fault);
  }
  const auto with_name = [&](Error error) {
    return tl::unexpected(std::move(error).WithContext(fmt::format("tensor '{}'", tensor.name)));
  };
  if (Status shape = ReadShape(cursor, tensor); !shape) return with_name(std::move(shape).error());
  auto offset = cursor.Read<uint64_t>("tensor offset");
  if (!offset) return with_name(std::move(offset).error());
  tensor.offset = *offset;
  return tensor;
}

// Indices of `items` ordered by name; afterwards equal names are neighbours.
template <typename T, typename NameOfItem>
std::vector<uint32_t> SortByName(const std::vector<T>& items, NameOfItem name_of) {
  std::vector<uint32_t> order(items.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return name_of(items[a]) < name_of(items[b]); });
  return order;
}

Status ReadMetadata(Cursor& cursor, uint64_t count, GgufContents& contents) {
  contents.metadata.reserve(
      static_cast<size_t>(std::min(count, cursor.left() / kMinMetadataBytes)));
  for (uint64_t i = 0; i < count; ++i) {
    RL_ASSIGN_OR_RETURN(const GgufEntry entry, ReadEntry(cursor));
    contents.metadata.push_back(entry);
  }
  IndexKeys(contents);
  for (size_t i = 1; i < contents.keys_by_name.size(); ++i) {
    const std::string_view key = contents.metadata[contents.keys_by_name[i]].key;
    if (key == contents.metadata[contents.keys_by_name[i - 1]].key) {
      return MakeError(ErrorKind::kModelFile, "gguf.key",
                       "metadata key '{}' is given twice, expected once; the file is corrupt", key);
    }
  }
  return OkStatus();
}

Status ReadTensors(Cursor& cursor, uint64_t count, GgufContents& contents) {
  contents.tensors.reserve(static_cast<size_t>(std::min(count, cursor.left() / kMinTensorBytes)));
  uint64_t total = 0;
  for (uint64_t i = 0; i < count; ++i) {
    RL_ASSIGN_OR_RETURN(const TensorInfo tensor, ReadTensor(cursor));
    const auto padded = CheckedAlignUp<uint64_t>(tensor.bytes, contents.alignment);
    const auto sum = padded ? CheckedAdd(total, *padded) : std::nullopt;
    if (!sum) {
      return MakeError(
          ErrorKind::kModelFile, "gguf.total_size",
          "the tensors up to '{}' add up to more than 2^64 bytes, but the file has {}; "
          "the file is corrupt or hostile",
          tensor.name, cursor.size());
    }
    total = *sum;
    contents.tensors.push_back(tensor);
  }
  IndexTensors(contents);
  for (size_t i = 1; i < contents.tensors_by_name.size(); ++i) {
    const std::string_view name = contents.tensors[contents.tensors_by_name[i]].name;
    if (name == contents.tensors[contents.tensors_by_name[i - 1]].name) {
      return MakeError(ErrorKind::kModelFile, "gguf.tensor_duplicate",
                       "tensor '{}' is given twice, expected once; the file is corrupt", name);
    }
  }
  return OkStatus();
}

const GgufValue* FindValue(const GgufContents& contents, std::string_view key) {
  for (const GgufEntry& entry : contents.metadata) {
    if (entry.key == key) return &entry.value;
  }
  return nullptr;
}

Status ReadAlignment(GgufContents& contents) {
  const GgufValue* value = FindValue(contents, "general.alignment");
  if (value == nullptr) return OkStatus();
  const auto alignment =
      value->type == GgufType::kArray ? std::nullopt : IntegerAt<uint32_t>(*value, 0);
  if (!alignment) {
    return MakeError(ErrorKind::kModelFile, "gguf.key_type",
                     "key 'general.alignment': found {}, expected u32; convert the model again",
                     Describe(*value));
  }
  if (!IsGgufAlignment(*alignment)) {
    return MakeError(ErrorKind::kModelFile, "gguf.alignment",
                     "general.alignment is {}, expected a power of two from {} to {} (usually {}); "
                     "the file is corrupt",
                     *alignment, kGgufMinAlignment, kGgufMaxAlignment, kGgufDefaultAlignment);
  }
  contents.alignment = *alignment;
  return OkStatus();
}

// The number under a key, if it is there and not negative. Writers give it any integer type.
Result<std::optional<uint64_t>> FindCount(const GgufContents& contents, std::string_view key) {
  const GgufValue* value = FindValue(contents, key);
  if (value == nullptr) return std::optional<uint64_t>();
  const auto number =
      value->type == GgufType::kArray ? std::nullopt : IntegerAt<uint64_t>(*value, 0);
  if (number) return number;
  return MakeError(ErrorKind::kModelFile, "gguf.key_type",
                   "key '{}': found {}, expected a count; split the model again", key,
                   Describe(*value));
}

// A merged file keeps the keys with count 0.
Status ReadSplit(GgufContents& contents) {
  RL_ASSIGN_OR_RETURN(const auto parts, FindCount(contents, "split.count"));
  RL_ASSIGN_OR_RETURN(const auto part, FindCount(contents, "split.no"));
  RL_ASSIGN_OR_RETURN(const auto tensors, FindCount(contents, "split.tensors.count"));
  if (parts && *parts <= 1) return OkStatus();
  if (!parts && !part && !tensors) return OkStatus();
  if (!parts || !part || *part >= *parts || *parts > kMaxSplitParts) {
    return MakeError(ErrorKind::kModelFile, "gguf.split",
                     "split.no is {} and split.count is {}, expected a number from 0 and a count "
                     "above it, at most {}; split the model again",
                     part ? fmt::format("{}", *part) : "missing",
                     parts ? fmt::format("{}", *parts) : "missing", kMaxSplitParts);
  }
  contents.split = GgufSplit{*part, *parts, tensors};
  return OkStatus();
}

}  // namespace

void IndexKeys(GgufContents& contents) {
  contents.keys_by_name =
      SortByName(contents.metadata, [](const GgufEntry& entry) { return entry.key; });
}

void IndexTensors(GgufContents& contents) {
  contents.tensors_by_name =
      SortByName(contents.tensors, [](const TensorInfo& tensor) { return tensor.name; });
}

Result<GgufContents> ParseGguf(GgufHead& head) {
  if (head.file_bytes < kHeaderBytes) {
    return MakeError(ErrorKind::kModelFile, "gguf.too_short",
                     "found {} bytes, but a GGUF header alone has {}; the download is incomplete, "
                     "fetch the file again",
                     head.file_bytes, kHeaderBytes);
  }
  Cursor cursor(head);
  RL_ASSIGN_OR_RETURN(const uint32_t magic, cursor.Read<uint32_t>("magic"));
  if (magic != kGgufMagic) {
    return MakeError(ErrorKind::kModelFile, "gguf.bad_magic",
                     "this is not a GGUF file, it looks like {}; give the path of a .gguf model",
                     LooksLike(head.bytes));
  }
  GgufContents contents;
  RL_ASSIGN_OR_RETURN(contents.version, cursor.Read<uint32_t>("version"));
  RL_RETURN_IF_ERROR(CheckVersion(contents.version));
  RL_ASSIGN_OR_RETURN(const uint64_t tensor_count, cursor.Read<uint64_t>("tensor count"));
  RL_ASSIGN_OR_RETURN(const uint64_t entry_count, cursor.Read<uint64_t>("metadata count"));
  RL_RETURN_IF_ERROR(CheckCount(entry_count, kMinMetadataBytes, cursor, "metadata entries"));
  RL_RETURN_IF_ERROR(CheckCount(tensor_count, kMinTensorBytes, cursor, "tensors"));
  RL_RETURN_IF_ERROR(ReadMetadata(cursor, entry_count, contents));
  RL_RETURN_IF_ERROR(ReadAlignment(contents));
  RL_RETURN_IF_ERROR(ReadSplit(contents));
  RL_RETURN_IF_ERROR(ReadTensors(cursor, tensor_count, contents));
  const auto data_offset = CheckedAlignUp<uint64_t>(cursor.position(), contents.alignment);
  if (!data_offset) {  // position <= file size, so only a file of almost 2^64 bytes gets here
    return Truncated(cursor.position(), contents.alignment, "padding", cursor.size());
  }
  // A part without tensors may end without padding.
  contents.data_offset =
      tensor_count == 0 ? std::min<uint64_t>(*data_offset, head.file_bytes) : *data_offset;
  RL_RETURN_IF_ERROR(PlaceTensors(head.file_bytes, contents));
  return contents;
}

}  // namespace rullama::gguf_internal
