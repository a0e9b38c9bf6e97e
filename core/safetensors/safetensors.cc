#include "core/safetensors/safetensors.h"

#include <rullama/sdk/half.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/checked_math.h"
#include "core/base/error_of.h"
#include "core/base/json_reader.h"
#include "core/base/printable.h"

namespace rullama {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kLengthBytes = 8;
// The header, a tensor, its shape.
constexpr size_t kMaxHeaderDepth = 3;

struct ElementType {
  std::string_view name;
  uint64_t bytes;
};
constexpr std::array kElementTypes = {
    ElementType{"F64", 8},     ElementType{"F32", 4},     ElementType{"F16", 2},
    ElementType{"BF16", 2},    ElementType{"I64", 8},     ElementType{"I32", 4},
    ElementType{"I16", 2},     ElementType{"I8", 1},      ElementType{"U64", 8},
    ElementType{"U32", 4},     ElementType{"U16", 2},     ElementType{"U8", 1},
    ElementType{"F8_E4M3", 1}, ElementType{"F8_E5M2", 1}, ElementType{"BOOL", 1},
};

std::string JsonText(const Json& value) {
  return value.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

uint64_t LengthOf(std::span<const std::byte> bytes) {
  uint64_t length = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    length |= std::to_integer<uint64_t>(bytes[i]) << (8 * i);
  }
  return length;
}

using BadHeader = ErrorOf<ErrorKind::kModelFile, "safetensors.header">;

// The header as an object in which no key occurs twice.
Result<Json> ParseHeader(std::string_view text) {
  auto json = ReadJson(text, {.depth = kMaxHeaderDepth});
  if (!json && json.error().kind == JsonFault::Kind::kDuplicateKey) {
    return BadHeader("'{}' occurs twice in the header, expected each name once", json.error().key);
  }
  if (json && json->is_object()) return *std::move(json);
  return BadHeader("the header {}, expected a JSON object of tensors; the file is damaged",
                   json ? "is not a JSON object" : json.error().ToString());
}

Result<std::map<std::string, std::string>> ReadMetadata(const Json& json) {
  if (!json.is_object()) return BadHeader("__metadata__ is not an object, expected strings by key");
  std::map<std::string, std::string> metadata;
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) {
      return BadHeader("__metadata__ has '{}' of type {}, expected a string", ShownName(key),
                       value.type_name());
    }
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

// A list of whole numbers from 0 to INT64_MAX, or nothing.
std::optional<std::vector<int64_t>> ReadNumbers(const Json& tensor, const char* key) {
  const auto found = tensor.find(key);
  if (found == tensor.end() || !found->is_array()) return std::nullopt;
  std::vector<int64_t> numbers;
  for (const Json& item : *found) {
    if (!item.is_number_unsigned()) return std::nullopt;
    const auto number = CheckedCast<int64_t>(item.get<uint64_t>());
    if (!number) return std::nullopt;
    numbers.push_back(*number);
  }
  return numbers;
}

Result<uint64_t> BytesOf(const SafetensorsTensor& tensor) {
  const auto* const type = std::ranges::find(kElementTypes, tensor.dtype, &ElementType::name);
  if (type == kElementTypes.end()) {
    return MakeError(ErrorKind::kModelFile, "safetensors.tensor",
                     "tensor '{}' has type '{}', expected F32, F16, BF16 or another type of the "
                     "format",
                     ShownName(tensor.name), ShownName(tensor.dtype));
  }
  std::optional<uint64_t> bytes = type->bytes;
  for (const int64_t dim : tensor.shape) {
    if (bytes) bytes = CheckedMul(*bytes, static_cast<uint64_t>(dim));
  }
  if (!bytes) {
    return MakeError(ErrorKind::kModelFile, "safetensors.tensor",
                     "tensor '{}' has shape [{}], which is more than 2^64 bytes; the file is "
                     "damaged",
                     ShownName(tensor.name), fmt::join(tensor.shape, ", "));
  }
  return *bytes;
}

Result<SafetensorsTensor> ReadTensor(const std::string& name, const Json& json,
                                     uint64_t data_bytes) {
  const auto bad = [&name](std::string_view what) {
    return MakeError(ErrorKind::kModelFile, "safetensors.tensor", "tensor '{}' {}", ShownName(name),
                     what);
  };
  if (!json.is_object() || json.size() != 3) {
    return bad("has other members than dtype, shape and data_offsets");
  }
  const auto dtype = json.find("dtype");
  if (dtype == json.end() || !dtype->is_string()) return bad("has no dtype, expected its name");
  SafetensorsTensor tensor{.name = name, .dtype = dtype->get<std::string>(), .shape = {}};
  auto shape = ReadNumbers(json, "shape");
  if (!shape) return bad("has no shape, expected a list of whole numbers");
  tensor.shape = *std::move(shape);
  const auto offsets = ReadNumbers(json, "data_offsets");
  if (!offsets || offsets->size() != 2) return bad("has no data_offsets, expected [begin, end]");
  tensor.begin = static_cast<uint64_t>((*offsets)[0]);
  tensor.end = static_cast<uint64_t>((*offsets)[1]);
  if (tensor.begin > tensor.end || tensor.end > data_bytes) {
    return bad(
        fmt::format("has its data at bytes {} to {} of {}, expected them in order and in "
                    "the file; it is damaged or was not copied completely",
                    tensor.begin, tensor.end, data_bytes));
  }
  RL_ASSIGN_OR_RETURN(const uint64_t bytes, BytesOf(tensor));
  if (bytes != tensor.end - tensor.begin) {
    return bad(fmt::format("has {} bytes of data, expected {} for {} [{}]",
                           tensor.end - tensor.begin, bytes, tensor.dtype,
                           fmt::join(tensor.shape, ", ")));
  }
  return tensor;
}

Status CheckLayout(const std::vector<SafetensorsTensor>& tensors, uint64_t data_bytes) {
  uint64_t at = 0;
  for (const SafetensorsTensor& tensor : tensors) {
    if (tensor.begin != at) {
      return MakeError(ErrorKind::kModelFile, "safetensors.layout",
                       "tensor '{}' begins at byte {}, expected {}, where the one before it ends",
                       ShownName(tensor.name), tensor.begin, at);
    }
    at = tensor.end;
  }
  if (at == data_bytes) return OkStatus();
  return MakeError(ErrorKind::kModelFile, "safetensors.layout",
                   "the tensors end at byte {}, but the file has {} bytes of data", at, data_bytes);
}

}  // namespace

bool SafetensorsFile::LooksLike(std::span<const std::byte> bytes) {
  return bytes.size() > kLengthBytes && LengthOf(bytes) <= bytes.size() - kLengthBytes &&
         std::to_integer<char>(bytes[kLengthBytes]) == '{';
}

Result<SafetensorsFile> SafetensorsFile::Parse(std::span<const std::byte> bytes) {
  if (bytes.size() < kLengthBytes) {
    return BadHeader("the file has {} bytes, expected at least {}", bytes.size(), kLengthBytes);
  }
  const uint64_t length = LengthOf(bytes);
  if (length > kMaxSafetensorsHeader || length > bytes.size() - kLengthBytes) {
    return BadHeader(
        "the header would have {} bytes, the file has {} after its length (limit {}); it is not a "
        "safetensors file, or was not copied completely",
        length, bytes.size() - kLengthBytes, kMaxSafetensorsHeader);
  }
  SafetensorsFile file;
  file.data_ = bytes.subspan(static_cast<size_t>(kLengthBytes + length));
  const auto header = bytes.subspan(kLengthBytes, static_cast<size_t>(length));
  RL_ASSIGN_OR_RETURN(const Json json,
                      ParseHeader({reinterpret_cast<const char*>(header.data()), header.size()}));
  for (const auto& [name, value] : json.items()) {
    if (name == "__metadata__") {
      RL_ASSIGN_OR_RETURN(file.metadata_, ReadMetadata(value));
      continue;
    }
    RL_ASSIGN_OR_RETURN(SafetensorsTensor tensor, ReadTensor(name, value, file.data_.size()));
    file.tensors_.push_back(std::move(tensor));
  }
  std::ranges::stable_sort(file.tensors_, {}, [](const SafetensorsTensor& tensor) {
    return std::pair(tensor.begin, tensor.end);
  });
  RL_RETURN_IF_ERROR(CheckLayout(file.tensors_, file.data_.size()));
  return file;
}

Result<SafetensorsFile> SafetensorsFile::Open(const std::filesystem::path& path) {
  RL_ASSIGN_OR_RETURN(MmapFile mapping, MmapFile::Open(path));
  auto file = Parse(mapping.bytes());
  if (!file) {
    return tl::unexpected(
        std::move(file).error().WithContext(fmt::format("'{}'", ShownName(path.string()))));
  }
  file->mapping_ = std::move(mapping);
  return file;
}

std::span<const std::byte> SafetensorsFile::data(const SafetensorsTensor& tensor) const {
  return data_.subspan(static_cast<size_t>(tensor.begin),
                       static_cast<size_t>(tensor.end - tensor.begin));
}

Result<std::vector<float>> SafetensorsFile::Floats(const SafetensorsTensor& tensor) const {
  const auto bytes = data(tensor);
  if (tensor.dtype == "F32") {
    std::vector<float> values(bytes.size() / sizeof(float));
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  if (tensor.dtype != "F16" && tensor.dtype != "BF16") {
    return MakeError(ErrorKind::kModelFile, "safetensors.tensor",
                     "tensor '{}' has type {}, expected F32, F16 or BF16", ShownName(tensor.name),
                     tensor.dtype);
  }
  std::vector<float> values(bytes.size() / sizeof(uint16_t));
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t half = 0;
    std::memcpy(&half, bytes.data() + i * sizeof(half), sizeof(half));
    values[i] = tensor.dtype == "F16" ? HalfToFloat(half) : BFloat16ToFloat(half);
  }
  return values;
}

std::vector<std::byte> EncodeSafetensors(std::vector<SafetensorsOutput> tensors,
                                         const std::map<std::string, std::string>& metadata) {
  std::ranges::sort(tensors, {}, &SafetensorsOutput::name);
  std::string header = "{";
  if (!metadata.empty()) header += "\"__metadata__\":" + JsonText(metadata);
  uint64_t at = 0;
  for (const SafetensorsOutput& tensor : tensors) {
    const uint64_t end = at + tensor.values.size_bytes();
    header += fmt::format("{}{}:{{\"dtype\":\"F32\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                          header.size() == 1 ? "" : ",", JsonText(tensor.name),
                          fmt::join(tensor.shape, ","), at, end);
    at = end;
  }
  header += '}';
  header.resize((header.size() + kLengthBytes - 1) / kLengthBytes * kLengthBytes, ' ');
  std::vector<std::byte> bytes;
  bytes.reserve(static_cast<size_t>(kLengthBytes + header.size() + at));
  for (size_t i = 0; i < kLengthBytes; ++i) {
    bytes.push_back(static_cast<std::byte>(header.size() >> (8 * i)));
  }
  const auto append = [&bytes](std::span<const std::byte> more) {
    bytes.insert(bytes.end(), more.begin(), more.end());
  };
  append(std::as_bytes(std::span(header)));
  for (const SafetensorsOutput& tensor : tensors) append(std::as_bytes(tensor.values));
  return bytes;
}

}  // namespace rullama
