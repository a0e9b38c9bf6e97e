#include "core/gguf/gguf.h"

#include <algorithm>
#include <functional>
#include <system_error>
#include <utility>

#include "core/gguf/gguf_parse.h"

namespace rullama {
namespace {

template <typename T, typename NameOfItem>
const T* FindByName(const std::vector<T>& items, const std::vector<uint32_t>& order,
                    std::string_view name, NameOfItem name_of) {
  const auto found = std::lower_bound(
      order.begin(), order.end(), name,
      [&](uint32_t index, std::string_view key) { return name_of(items[index]) < key; });
  if (found == order.end() || name_of(items[*found]) != name) return nullptr;
  return &items[*found];
}

// The mapping, with the answer a user of models needs when the path is not a file at all.
Result<MmapFile> MapModel(const std::filesystem::path& path) {
  auto file = MmapFile::Open(path);
  if (file) return file;
  std::error_code failure;
  const auto status = std::filesystem::status(path, failure);
  if (!failure && std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    return MakeError(ErrorKind::kModelFile, "gguf.not_a_file", "{}; give the path of a .gguf model",
                     file.error().message);
  }
  return file;
}

struct MappedGguf {
  MmapFile file;
  GgufContents contents;
};

// Errors name the file.
Result<MappedGguf> MapGguf(const std::filesystem::path& path) {
  RL_ASSIGN_OR_RETURN(MmapFile file, MapModel(path));
  auto contents = gguf_internal::ParseGguf(file.bytes());
  if (!contents) {
    return tl::unexpected(
        std::move(contents).error().WithContext(fmt::format("model file '{}'", path.string())));
  }
  return MappedGguf{std::move(file), *std::move(contents)};
}

}  // namespace

Result<GgufFile> GgufFile::Open(const std::filesystem::path& path) {
  RL_ASSIGN_OR_RETURN(MappedGguf named, MapGguf(path));
  GgufFile file;
  if (!named.contents.split) {
    file.files_.push_back(std::move(named.file));
    file.contents_ = std::move(named.contents);
  } else {
    const uint64_t number = named.contents.split->part;
    RL_ASSIGN_OR_RETURN(const auto paths, gguf_internal::PartPaths(path, *named.contents.split));
    std::vector<GgufContents> contents;
    for (uint64_t part = 0; part < paths.size(); ++part) {
      if (part == number) {
        file.files_.push_back(std::move(named.file));
        contents.push_back(std::move(named.contents));
        continue;
      }
      RL_ASSIGN_OR_RETURN(MappedGguf other, MapGguf(paths[part]));
      file.files_.push_back(std::move(other.file));
      contents.push_back(std::move(other.contents));
    }
    RL_ASSIGN_OR_RETURN(file.contents_, gguf_internal::JoinParts(std::move(contents), paths));
  }
  for (const MmapFile& part : file.files_) file.parts_.push_back(part.bytes());
  return file;
}

Result<GgufFile> GgufFile::Parse(std::span<const std::byte> bytes) {
  GgufFile file;
  RL_ASSIGN_OR_RETURN(file.contents_, gguf_internal::ParseGguf(bytes));
  if (const auto& split = file.contents_.split) {
    return MakeError(ErrorKind::kModelFile, "gguf.split",
                     "found part {} of {} of a split model, expected a whole file; open it by its "
                     "name, next to the other parts",
                     split->part + 1, split->parts);
  }
  file.parts_.push_back(bytes);
  return file;
}

uint64_t GgufFile::total_bytes() const {
  uint64_t bytes = 0;
  for (const auto& part : parts_) bytes += part.size();
  return bytes;
}

std::vector<std::string> GgufFile::paths() const {
  std::vector<std::string> paths;
  paths.reserve(files_.size());
  for (const MmapFile& file : files_) paths.push_back(file.path());
  return paths;
}

void GgufFile::Release(std::span<const std::byte> range) const {
  const std::less_equal<> before;
  for (const MmapFile& file : files_) {
    const std::span<const std::byte> mapped = file.bytes();
    if (before(mapped.data(), range.data()) &&
        before(range.data() + range.size(), mapped.data() + mapped.size())) {
      file.Release(range);
      return;
    }
  }
}

const GgufValue* GgufFile::Find(std::string_view key) const {
  const GgufEntry* entry = FindByName(contents_.metadata, contents_.keys_by_name, key,
                                      [](const GgufEntry& item) { return item.key; });
  return entry != nullptr ? &entry->value : nullptr;
}

const TensorInfo* GgufFile::FindTensor(std::string_view name) const {
  return FindByName(contents_.tensors, contents_.tensors_by_name, name,
                    [](const TensorInfo& item) { return item.name; });
}

Status GgufFile::CheckUnchanged() const {
  for (const MmapFile& file : files_) RL_RETURN_IF_ERROR(file.CheckUnchanged());
  return OkStatus();
}

}  // namespace rullama
