// Models that are split into several files, as llama.cpp's gguf-split and Hugging Face's
// repositories have them: "NAME-00001-of-00003.gguf" and so on. Each part is a GGUF file with some
// of the tensors; the first has the metadata and may have no tensors.
#include <algorithm>
#include <system_error>
#include <utility>

#include "core/gguf/gguf_parse.h"

namespace rullama::gguf_internal {
namespace {

constexpr std::string_view kSplitKeys = "split.";

// What follows the common name.
std::string PartSuffix(uint64_t part, uint64_t parts) {
  return fmt::format("-{:05}-of-{:05}.gguf", part + 1, parts);
}

std::string NameOfFile(const std::filesystem::path& path) { return path.filename().string(); }

Status CheckPart(const GgufContents& contents, const GgufSplit& first, uint64_t part,
                 const std::filesystem::path& path) {
  if (!contents.split) {
    return MakeError(ErrorKind::kModelFile, "gguf.split",
                     "'{}' is a whole model, expected part {} of {}; fetch the parts again",
                     NameOfFile(path), part + 1, first.parts);
  }
  const GgufSplit& own = *contents.split;
  if (own.part != part || own.parts != first.parts) {
    return MakeError(
        ErrorKind::kModelFile, "gguf.split",
        "'{}' says that it is part {} of {}, expected part {} of {}; it was renamed or "
        "belongs to another model",
        NameOfFile(path), own.part + 1, own.parts, part + 1, first.parts);
  }
  if (own.tensors && first.tensors && *own.tensors != *first.tensors) {
    return MakeError(ErrorKind::kModelFile, "gguf.split",
                     "'{}' belongs to a model of {} tensors, the first part to one of {}; fetch "
                     "all parts of one model",
                     NameOfFile(path), *own.tensors, *first.tensors);
  }
  return OkStatus();
}

Status CheckTensors(const GgufContents& joined, const GgufSplit& first,
                    std::span<const std::filesystem::path> paths) {
  for (size_t i = 1; i < joined.tensors_by_name.size(); ++i) {
    const TensorInfo& before = joined.tensors[joined.tensors_by_name[i - 1]];
    const TensorInfo& tensor = joined.tensors[joined.tensors_by_name[i]];
    if (tensor.name != before.name) continue;
    const uint32_t low = std::min(before.part, tensor.part);
    const uint32_t high = std::max(before.part, tensor.part);
    return MakeError(ErrorKind::kModelFile, "gguf.tensor_duplicate",
                     "tensor '{}' is in '{}' and in '{}', expected in one of them; the parts do "
                     "not belong together",
                     tensor.name, NameOfFile(paths[low]), NameOfFile(paths[high]));
  }
  if (first.tensors && *first.tensors != joined.tensors.size()) {
    return MakeError(ErrorKind::kModelFile, "gguf.split",
                     "the {} parts have {} tensors, expected {} (split.tensors.count); fetch all "
                     "parts of one model",
                     paths.size(), joined.tensors.size(), *first.tensors);
  }
  return OkStatus();
}

// Without what says that the file is a part, so that files made of it are whole.
void RemoveSplitKeys(GgufContents& contents) {
  std::erase_if(contents.metadata,
                [](const GgufEntry& entry) { return entry.key.starts_with(kSplitKeys); });
  IndexKeys(contents);
  contents.split.reset();
}

}  // namespace

Result<std::vector<std::filesystem::path>> PartPaths(const std::filesystem::path& named,
                                                     const GgufSplit& split) {
  const std::string name = NameOfFile(named);
  const std::string suffix = PartSuffix(split.part, split.parts);
  if (!name.ends_with(suffix)) {
    return MakeError(ErrorKind::kModelFile, "gguf.split",
                     "'{}' is part {} of {} of a split model, expected a name that ends with '{}', "
                     "by which the other parts are found; give the parts their names again",
                     named.string(), split.part + 1, split.parts, suffix);
  }
  const std::string common = name.substr(0, name.size() - suffix.size());
  constexpr size_t kMaxShown = 8;
  std::vector<std::filesystem::path> paths;
  std::vector<std::string> missing;
  for (uint64_t part = 0; part < split.parts; ++part) {
    paths.push_back(named.parent_path() / (common + PartSuffix(part, split.parts)));
    std::error_code ignored;
    if (!std::filesystem::exists(paths.back(), ignored))
      missing.push_back(NameOfFile(paths.back()));
  }
  if (missing.empty()) return paths;
  const size_t shown = std::min(missing.size(), kMaxShown);
  return MakeError(
      ErrorKind::kModelFile, "gguf.split_missing",
      "'{}' is one of {} parts, and {} not next to it: {}{}; fetch the missing parts",
      named.string(), split.parts,
      missing.size() == 1 ? "one is" : fmt::format("{} are", missing.size()),
      fmt::join(missing.begin(), missing.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
      shown < missing.size() ? fmt::format(" and {} more", missing.size() - shown) : "");
}

Result<GgufContents> JoinParts(std::vector<GgufContents> parts,
                               std::span<const std::filesystem::path> paths) {
  if (!parts.front().split) {
    return MakeError(ErrorKind::kModelFile, "gguf.split",
                     "'{}' is a whole model, expected part 1 of {}; fetch the parts again",
                     NameOfFile(paths.front()), parts.size());
  }
  const GgufSplit first = *parts.front().split;
  GgufContents joined = std::move(parts.front());
  for (size_t part = 0; part < parts.size(); ++part) {
    const GgufContents& own = part == 0 ? joined : parts[part];
    RL_RETURN_IF_ERROR(CheckPart(own, first, part, paths[part]));
    if (part == 0) continue;
    for (TensorInfo tensor : own.tensors) {
      tensor.part = static_cast<uint32_t>(part);
      joined.tensors.push_back(tensor);
    }
  }
  IndexTensors(joined);
  RL_RETURN_IF_ERROR(CheckTensors(joined, first, paths));
  RemoveSplitKeys(joined);
  return joined;
}

}  // namespace rullama::gguf_internal
