#include "downloads/ollama_remove.h"

#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>

#include "core/base/json_reader.h"
#include "core/base/printable.h"
#include "downloads/digest.h"
#include "downloads/store_files.h"

namespace rullama::downloads {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxStoredManifest = size_t{1} << 20;

// The SHA-256 of everything that a manifest names, whatever its types; nothing if it is unreadable.
std::optional<std::set<std::string>> BlobsOf(const fs::path& manifest) {
  constexpr std::string_view kPrefix = "sha256:";
  const auto json = ReadJson(ReadOwnFile(manifest, kMaxStoredManifest), {.depth = 16});
  if (!json || !json->is_object()) return std::nullopt;
  std::set<std::string> blobs;
  const auto add = [&](const nlohmann::json& part) {
    const auto digest = part.is_object() ? part.find("digest") : part.end();
    if (!part.is_object() || digest == part.end() || !digest->is_string()) return;
    const auto& text = digest->get_ref<const std::string&>();
    if (!text.starts_with(kPrefix) || !IsHex(text.substr(kPrefix.size()), 64)) return;
    blobs.insert(text.substr(kPrefix.size()));
  };
  if (const auto config = json->find("config"); config != json->end()) add(*config);
  if (const auto layers = json->find("layers"); layers != json->end() && layers->is_array()) {
    for (const nlohmann::json& layer : *layers) add(layer);
  }
  return blobs;
}

// The blobs that the manifests of the store name; nothing if one of them is unreadable.
std::optional<std::set<std::string>> BlobsOfAll(const fs::path& manifests) {
  std::set<std::string> all;
  std::error_code failure;
  fs::recursive_directory_iterator entry(manifests, failure);
  for (; !failure && entry != fs::recursive_directory_iterator(); entry.increment(failure)) {
    std::error_code ignored;
    if (entry->is_directory(ignored)) continue;
    const auto blobs = BlobsOf(entry->path());
    if (!blobs) return std::nullopt;
    all.insert(blobs->begin(), blobs->end());
  }
  return failure ? std::nullopt : std::optional(std::move(all));
}

}  // namespace

Status RemoveFromOllamaStore(const OllamaName& name, const fs::path& store,
                             const PullHooks& hooks) {
  const fs::path manifests = store / "manifests";
  const fs::path manifest = manifests / name.host / name.name_space / name.model / name.tag;
  const auto own = BlobsOf(manifest);
  if (::unlink(manifest.c_str()) != 0) {
    if (errno != ENOENT && errno != ENOTDIR) return WriteFailure(manifest, errno);
    return MakeError(ErrorKind::kIo, "rm.not_found",
                     "'{}' is not in '{}'; 'rullama list' shows what there is", name.ToString(),
                     store.string());
  }
  RemoveEmptyFolders(manifest.parent_path(), manifests);
  const auto needed = BlobsOfAll(manifests);
  if (!own || !needed) {
    if (hooks.note) hooks.note("a manifest of the store cannot be read, so all blobs stay");
    return OkStatus();
  }
  for (const std::string& hex : *own) {
    if (needed->contains(hex)) continue;
    const fs::path lock_path = store / "blobs" / fmt::format(".sha256-{}.rullama-lock", hex);
    RL_ASSIGN_OR_RETURN(const FileLock lock,
                        FileLock::Take(lock_path, hex, /*removes=*/true, hooks));
    const fs::path blob = store / "blobs" / ("sha256-" + hex);
    if (::unlink(blob.c_str()) != 0 && errno != ENOENT) return WriteFailure(blob, errno);
  }
  return OkStatus();
}

}  // namespace rullama::downloads
