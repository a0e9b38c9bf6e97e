#include "core/gguf/gguf.h"

#include <algorithm>
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

}  // namespace

Result<GgufFile> GgufFile::Open(const std::filesystem::path& path) {
  RL_ASSIGN_OR_RETURN(MmapFile mapping, MapModel(path));
  auto contents = gguf_internal::ParseGguf(mapping.bytes());
  if (!contents) {
    return tl::unexpected(
        std::move(contents).error().WithContext(fmt::format("model file '{}'", path.string())));
  }
  GgufFile file;
  file.bytes_ = mapping.bytes();
  file.file_.emplace(std::move(mapping));
  file.contents_ = *std::move(contents);
  return file;
}

Result<GgufFile> GgufFile::Parse(std::span<const std::byte> bytes) {
  GgufFile file;
  RL_ASSIGN_OR_RETURN(file.contents_, gguf_internal::ParseGguf(bytes));
  file.bytes_ = bytes;
  return file;
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

Status GgufFile::CheckUnchanged() const { return file_ ? file_->CheckUnchanged() : OkStatus(); }

}  // namespace rullama
