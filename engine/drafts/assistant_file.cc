#include "engine/drafts/assistant_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <system_error>
#include <utility>

#include "models/registry.h"

namespace rullama {
namespace {

namespace fs = std::filesystem;

bool IsAssistantName(const fs::path& path) {
  return path.extension() == ".gguf" && path.filename().string().starts_with("mtp-");
}

// In the order of their names.
void AddFilesOf(const fs::path& folder, std::vector<fs::path>& found) {
  const auto first = std::ssize(found);
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.is_regular_file(ignored) && IsAssistantName(entry.path())) {
      found.push_back(entry.path());
    }
  }
  std::sort(found.begin() + first, found.end());
}

Result<AssistantFile> Open(const fs::path& path, const Model& model, AssistantOrigin origin,
                           const HostHooks& hooks) {
  AssistantFile opened{.name = path.string()};
  // Its errors name the file.
  RL_ASSIGN_OR_RETURN(GgufFile file, GgufFile::Open(path));
  opened.file = std::make_unique<GgufFile>(std::move(file));
  if (!IsAssistant(*opened.file)) {
    return MakeError(ErrorKind::kModelFile, "model.arch",
                     "'{}' is not a drafter, expected the file of a model's assistant",
                     opened.name);
  }
  opened.mapping = MappingNotice(hooks, opened.file->bytes());
  auto assistant = model.ReadAssistant(*opened.file, origin);
  if (!assistant) {
    return tl::unexpected(
        std::move(assistant).error().WithContext(fmt::format("drafter '{}'", opened.name)));
  }
  opened.assistant = *std::move(assistant);
  return opened;
}

}  // namespace

std::vector<fs::path> AssistantCandidates(const ModelFile& model) {
  if (model.ollama) {
    return model.ollama->draft ? std::vector<fs::path>{*model.ollama->draft}
                               : std::vector<fs::path>();
  }
  const fs::path own = model.file->path();
  std::vector<fs::path> found;
  if (own.empty() || IsAssistantName(own)) return found;
  const fs::path folder = own.parent_path().empty() ? "." : own.parent_path();
  AddFilesOf(folder, found);
  AddFilesOf(folder / "MTP", found);
  return found;
}

Result<AssistantFile> OpenAssistant(const fs::path& path, const Model& model,
                                    const HostHooks& hooks) {
  return Open(path, model, AssistantOrigin::kNamed, hooks);
}

std::optional<AssistantFile> FindAssistant(const ModelFile& file, const Model& model,
                                           const HostHooks& hooks, Notices& notices) {
  for (const fs::path& path : AssistantCandidates(file)) {
    auto opened = Open(path, model, AssistantOrigin::kFound, hooks);
    if (opened) return *std::move(opened);
    notices.Note(fmt::format("no drafter of this model: {}", opened.error().message));
  }
  return std::nullopt;
}

}  // namespace rullama
