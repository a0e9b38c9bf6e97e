#include "core/runtime/snapshot_file.h"

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/gguf/gguf_writer.h"

namespace rullama {
namespace {

constexpr std::string_view kType = "snapshot";
constexpr uint32_t kVersion = 1;

namespace keys {
constexpr std::string_view kType = "general.type";
constexpr std::string_view kVersion = "snapshot.version";
constexpr std::string_view kModel0 = "snapshot.model.0";
constexpr std::string_view kModel1 = "snapshot.model.1";
constexpr std::string_view kTokens = "snapshot.tokens";
constexpr std::string_view kWritten = "snapshot.written";
constexpr std::string_view kRowTypes = "snapshot.row_types";
constexpr std::string_view kStateRows = "snapshot.state_rows";
constexpr std::string_view kChecksum = "snapshot.checksum";
}  // namespace keys

// The numbers that belong together, so that a file whose header was changed is noticed as well.
uint64_t ChecksumOf(const StoredSnapshot& stored) {
  const SnapshotInfo& info = stored.snapshot.info();
  const std::span<const std::byte> rows = stored.snapshot.data();
  const std::span<const int32_t> tokens = stored.tokens;
  XXH64_hash_t hash = XXH3_64bits(rows.data(), rows.size());
  hash = XXH3_64bits_withSeed(tokens.data(), tokens.size_bytes(), hash);
  hash = XXH3_64bits_withSeed(stored.model.data(), sizeof(stored.model), hash);
  for (const SnapshotPart& part : info.parts) {
    const std::string text = fmt::format("{} {} {} {} {}", part.state, part.row_type,
                                         part.state_rows, part.rows, info.written);
    hash = XXH3_64bits_withSeed(text.data(), text.size(), hash);
  }
  return hash;
}

// The element type of a row, "f16" of "f16[1,256]".
std::optional<DType> ElementTypeOf(std::string_view row_type) {
  const auto dtype = DTypeFromName(row_type.substr(0, row_type.find('[')));
  return dtype && !IsBlockType(*dtype) ? dtype : std::nullopt;
}

Status AddParts(const SnapshotInfo& info, GgufWriter& writer) {
  std::vector<std::string> row_types;
  std::vector<int32_t> state_rows;
  for (const SnapshotPart& part : info.parts) {
    const std::optional<DType> dtype = ElementTypeOf(part.row_type);
    if (!dtype) {
      return MakeError(ErrorKind::kRuntime, "session.internal", "rows of {} cannot be stored",
                       part.row_type);
    }
    const std::array<uint64_t, 2> dims = {part.row_bytes / InfoOf(*dtype).block_bytes,
                                          static_cast<uint64_t>(part.rows)};
    RL_RETURN_IF_ERROR(writer.AddTensor(part.state, *dtype, dims));
    row_types.push_back(part.row_type);
    state_rows.push_back(static_cast<int32_t>(part.state_rows));
  }
  RL_RETURN_IF_ERROR(writer.SetStrings(keys::kRowTypes, row_types));
  return writer.SetArray<int32_t>(keys::kStateRows, state_rows);
}

tl::unexpected<Error> Damaged(const GgufFile& file, const std::string& what) {
  return MakeError(ErrorKind::kModelFile, "snapshot.file",
                   "{}: {}; make the snapshot anew from its prompt",
                   file.path().empty() ? "snapshot" : file.path(), what);
}

Status CheckIsSnapshot(const GgufFile& file) {
  RL_ASSIGN_OR_RETURN(const auto type, file.FindString(keys::kType));
  if (type.value_or("") != kType) {
    return Damaged(file, fmt::format("found a file of type '{}', expected a snapshot",
                                     type.value_or("model")));
  }
  RL_ASSIGN_OR_RETURN(const uint32_t version, file.GetU32(keys::kVersion));
  if (version != kVersion) {
    return Damaged(file,
                   fmt::format("found version {} of the format, expected {}", version, kVersion));
  }
  return OkStatus();
}

Result<std::vector<SnapshotPart>> PartsOf(const GgufFile& file) {
  RL_ASSIGN_OR_RETURN(const GgufStrings row_types, file.GetStrings(keys::kRowTypes));
  RL_ASSIGN_OR_RETURN(const std::vector<int32_t> state_rows, file.GetI32Array(keys::kStateRows));
  const auto tensors = file.tensors();
  std::vector<SnapshotPart> parts;
  for (const std::string_view row_type : row_types) {
    const size_t i = parts.size();
    if (i >= tensors.size() || i >= state_rows.size()) break;
    const TensorInfo& tensor = tensors[i];
    parts.push_back({.state = std::string(tensor.name),
                     .row_type = std::string(row_type),
                     .row_bytes = RowBytes(tensor.dtype, tensor.dims[0]),
                     .state_rows = state_rows[i],
                     .rows = static_cast<int64_t>(tensor.dims[1])});
    if (tensor.rank != 2 || ElementTypeOf(row_type) != tensor.dtype ||
        parts.back().rows > parts.back().state_rows) {
      return Damaged(file,
                     fmt::format("state '{}' is not made of rows of {}", tensor.name, row_type));
    }
  }
  if (parts.size() != tensors.size() || parts.size() != state_rows.size() ||
      parts.size() != row_types.size()) {
    return Damaged(file, fmt::format("found {} states, {} types of rows and {} lengths, expected "
                                     "as many of each",
                                     tensors.size(), row_types.size(), state_rows.size()));
  }
  return parts;
}

}  // namespace

Status WriteSnapshot(const StoredSnapshot& stored, const std::filesystem::path& path) {
  const Snapshot& snapshot = stored.snapshot;
  const std::span<const int32_t> tokens = stored.tokens;
  const SnapshotInfo& info = snapshot.info();
  if (!snapshot.complete() || std::ssize(tokens) != info.position || info.position == 0) {
    return MakeError(ErrorKind::kRuntime, "session.internal",
                     "found a {} snapshot at position {} with {} tokens, expected a complete one "
                     "with a token for each position",
                     snapshot.complete() ? "complete" : "partial", info.position, tokens.size());
  }
  GgufWriter writer;
  RL_RETURN_IF_ERROR(writer.Set(keys::kType, kType));
  RL_RETURN_IF_ERROR(writer.Set(keys::kVersion, kVersion));
  RL_RETURN_IF_ERROR(writer.Set(keys::kModel0, stored.model[0]));
  RL_RETURN_IF_ERROR(writer.Set(keys::kModel1, stored.model[1]));
  RL_RETURN_IF_ERROR(writer.Set(keys::kWritten, static_cast<uint32_t>(info.written)));
  RL_RETURN_IF_ERROR(writer.SetArray<int32_t>(keys::kTokens, tokens));
  RL_RETURN_IF_ERROR(writer.Set(keys::kChecksum, ChecksumOf(stored)));
  RL_RETURN_IF_ERROR(AddParts(info, writer));
  RL_ASSIGN_OR_RETURN(GgufOutput output, writer.Begin(path));
  std::span<const std::byte> rest = snapshot.data();
  for (const SnapshotPart& part : info.parts) {
    RL_RETURN_IF_ERROR(output.Append(rest.first(static_cast<size_t>(part.bytes()))));
    rest = rest.subspan(static_cast<size_t>(part.bytes()));
  }
  return output.Finish();
}

Result<StoredSnapshot> ParseSnapshot(const GgufFile& file) {
  RL_RETURN_IF_ERROR(CheckIsSnapshot(file));
  ModelFingerprint model;
  RL_ASSIGN_OR_RETURN(model[0], file.GetU64(keys::kModel0));
  RL_ASSIGN_OR_RETURN(model[1], file.GetU64(keys::kModel1));
  RL_ASSIGN_OR_RETURN(std::vector<int32_t> tokens, file.GetI32Array(keys::kTokens));
  RL_ASSIGN_OR_RETURN(const uint32_t written, file.GetU32(keys::kWritten));
  RL_ASSIGN_OR_RETURN(const uint64_t checksum, file.GetU64(keys::kChecksum));
  if (tokens.empty() || written < tokens.size() || written > tokens.size() + 1) {
    return Damaged(file, fmt::format("found {} tokens and rows up to position {}, expected one "
                                     "row for each token",
                                     tokens.size(), written));
  }
  SnapshotInfo info;
  info.position = static_cast<int32_t>(tokens.size());
  info.written = static_cast<int32_t>(written);
  RL_ASSIGN_OR_RETURN(info.parts, PartsOf(file));
  RL_ASSIGN_OR_RETURN(Snapshot snapshot, Snapshot::Allocate(std::move(info)));
  std::span<std::byte> rest = snapshot.data();
  for (const TensorInfo& tensor : file.tensors()) {
    RL_ASSIGN_OR_RETURN(const auto bytes, file.Load(tensor));
    std::ranges::copy(bytes, rest.begin());
    rest = rest.subspan(static_cast<size_t>(tensor.bytes));
  }
  StoredSnapshot stored{std::move(snapshot), std::move(tokens), model};
  if (ChecksumOf(stored) != checksum) {
    return Damaged(file, "its checksum does not agree with its content");
  }
  return stored;
}

Result<StoredSnapshot> ReadSnapshot(const std::filesystem::path& path) {
  RL_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Open(path));
  RL_RETURN_IF_ERROR(file.CheckUnchanged());
  return ParseSnapshot(file);
}

}  // namespace rullama
