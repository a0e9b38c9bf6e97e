#include "core/gguf/gguf.h"

#include <algorithm>
#include <functional>
#include <system_error>
#include <utility>

#include "core/gguf/gguf_parse.h"
#include "core/gguf/gguf_ranges.h"

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

tl::unexpected<Error> NamedError(Error error, const std::string& path) {
  return tl::unexpected(std::move(error).WithContext(fmt::format("model file '{}'", path)));
}

tl::unexpected<Error> PartOfSplit(const GgufSplit& split) {
  return MakeError(ErrorKind::kModelFile, "gguf.split",
                   "found part {} of {} of a split model, expected a whole file; open it by its "
                   "name, next to the other parts",
                   split.part + 1, split.parts);
}

// Errors name the file.
Result<MappedGguf> MapGguf(const std::filesystem::path& path) {
  RL_ASSIGN_OR_RETURN(MmapFile file, MapModel(path));
  gguf_internal::GgufHead head{file.bytes(), file.bytes().size()};
  auto contents = gguf_internal::ParseGguf(head);
  if (!contents) return NamedError(std::move(contents).error(), path.string());
  return MappedGguf{std::move(file), *std::move(contents)};
}

}  // namespace

Result<GgufFile> GgufFile::Open(const std::filesystem::path& path) {
  if (!kMapsFiles) {
    RL_ASSIGN_OR_RETURN(auto reader, OpenRangeReader(path));
    return Read(std::move(reader));
  }
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
  gguf_internal::GgufHead head{bytes, bytes.size()};
  RL_ASSIGN_OR_RETURN(file.contents_, gguf_internal::ParseGguf(head));
  if (const auto& split = file.contents_.split) return PartOfSplit(*split);
  file.parts_.push_back(bytes);
  return file;
}

Result<GgufFile> GgufFile::Read(std::unique_ptr<RangeReader> reader) {
  GgufFile file;
  file.ranges_ = std::make_unique<Ranges>(std::move(reader));
  RL_ASSIGN_OR_RETURN(file.contents_, file.ranges_->ReadHeader());
  if (const auto& split = file.contents_.split) return PartOfSplit(*split);
  file.parts_.push_back(file.ranges_->header());
  RL_RETURN_IF_ERROR(file.ranges_->ReadSmallTensors(file.contents_.tensors));
  return file;
}

GgufFile::GgufFile() = default;
GgufFile::GgufFile(GgufFile&&) noexcept = default;
GgufFile& GgufFile::operator=(GgufFile&&) noexcept = default;
GgufFile::~GgufFile() = default;

std::string GgufFile::path() const {
  if (ranges_) return ranges_->reader().path();
  return files_.empty() ? std::string() : files_.front().path();
}

std::span<const std::byte> GgufFile::data(const TensorInfo& tensor) const {
  if (ranges_) return ranges_->Small(tensor);
  return parts_[tensor.part].subspan(static_cast<size_t>(tensor.offset),
                                     static_cast<size_t>(tensor.bytes));
}

Result<std::span<const std::byte>> GgufFile::Load(const TensorInfo& tensor, uint64_t first,
                                                  uint64_t count) const {
  if (ranges_) return ranges_->Load(tensor.offset + first, count);
  return data(tensor).subspan(static_cast<size_t>(first), static_cast<size_t>(count));
}

Result<std::span<const std::byte>> GgufFile::Load(const TensorInfo& tensor) const {
  if (!ranges_ || tensor.bytes <= kGgufSmallTensorBytes) return data(tensor);
  return Load(tensor, 0, tensor.bytes);
}

Status GgufFile::Copy(const TensorInfo& tensor, uint64_t first, std::span<std::byte> to) const {
  if (ranges_) return ranges_->reader().Read(tensor.offset + first, to);
  std::ranges::copy(data(tensor).subspan(static_cast<size_t>(first), to.size()), to.begin());
  return OkStatus();
}

uint64_t GgufFile::total_bytes() const {
  if (ranges_) return ranges_->reader().size();
  uint64_t bytes = 0;
  for (const auto& part : parts_) bytes += part.size();
  return bytes;
}

std::vector<std::string> GgufFile::paths() const {
  if (ranges_) return {path()};
  std::vector<std::string> paths;
  paths.reserve(files_.size());
  for (const MmapFile& file : files_) paths.push_back(file.path());
  return paths;
}

void GgufFile::Release(std::span<const std::byte> range) const {
  if (ranges_) return ranges_->Release(range);
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
  if (ranges_) return ranges_->reader().CheckUnchanged();
  for (const MmapFile& file : files_) RL_RETURN_IF_ERROR(file.CheckUnchanged());
  return OkStatus();
}

}  // namespace rullama
