#include "core/ollama/list.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <system_error>

namespace rullama {
namespace {

namespace fs = std::filesystem;

constexpr size_t kParts = 4;                   // manifests/HOST/NAMESPACE/MODEL/TAG
constexpr size_t kMaxFolderEntries = 100'000;  // of one folder; a folder with more is not a store

struct Walk {
  std::vector<OllamaEntry> found;
  std::set<std::string> names;
  std::optional<fs::path> denied;
};

void Collect(const fs::path& folder, std::vector<std::string>& parts, Walk& walk);

void CollectEntry(const fs::path& path, std::vector<std::string>& parts, Walk& walk) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0) return;
  if (parts.size() < kParts) {
    if (S_ISDIR(status.st_mode)) Collect(path, parts, walk);
    return;
  }
  if (!S_ISREG(status.st_mode)) return;
  auto name = ParseOllamaName(fmt::format("{}/{}/{}:{}", parts[0], parts[1], parts[2], parts[3]));
  if (!name || !walk.names.insert(name->ToString()).second) return;
  walk.found.push_back({*std::move(name), status.st_mtime});
}

void Collect(const fs::path& folder, std::vector<std::string>& parts, Walk& walk) {
  std::error_code failure;
  fs::directory_iterator entry(folder, failure);
  if (failure == std::errc::permission_denied) walk.denied = folder;
  for (size_t seen = 0; !failure && entry != fs::directory_iterator() && seen < kMaxFolderEntries;
       ++seen, entry.increment(failure)) {
    parts.push_back(entry->path().filename().string());
    CollectEntry(entry->path(), parts, walk);
    parts.pop_back();
  }
}

}  // namespace

Result<std::vector<OllamaEntry>> ListOllamaModels(const OllamaStoreOptions& options) {
  Walk walk;
  for (const fs::path& root : options.roots) {
    std::vector<std::string> parts;
    Collect(root / "manifests", parts, walk);
  }
  if (walk.found.empty() && walk.denied) {
    return MakeError(ErrorKind::kIo, "io.permission",
                     "cannot read '{}': permission denied; if the Ollama service owns the store, "
                     "join its group (sudo usermod -aG ollama $USER, then log in again)",
                     walk.denied->string());
  }
  std::ranges::stable_sort(walk.found, [](const OllamaEntry& a, const OllamaEntry& b) {
    return a.modified != b.modified ? a.modified > b.modified
                                    : a.name.ToString() < b.name.ToString();
  });
  return std::move(walk.found);
}

}  // namespace rullama
