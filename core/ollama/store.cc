#include "core/ollama/store.h"

#include <algorithm>
#include <cstdlib>
#include <system_error>
#include <utility>

#include "core/base/mmap_file.h"
#include "core/base/utf8.h"
#include "core/ollama/manifest.h"

namespace rullama {
namespace {

namespace fs = std::filesystem;
using gguf_internal::LayerRole;

constexpr std::string_view kServiceRoot = "/usr/share/ollama/.ollama/models";

tl::unexpected<Error> NoPermission(const fs::path& path) {
  return MakeError(
      ErrorKind::kIo, "io.permission",
      "cannot read '{}': permission denied; if the Ollama service owns the store, join "
      "its group (sudo usermod -aG ollama $USER, then log in again) or run as its user "
      "(sudo -u ollama)",
      path.string());
}

// Whether `path` is inside `folder`; both canonical.
bool IsInside(const fs::path& path, const fs::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first ==
         folder.end();
}

// One store on disk. All paths handed out are canonical and inside `root`.
class Store {
 public:
  // Returns nothing if there is no such folder.
  static Result<std::optional<Store>> Open(const fs::path& root) {
    std::error_code failure;
    fs::path canonical = fs::canonical(root, failure);
    if (failure == std::errc::permission_denied) return NoPermission(root);
    if (failure) return std::nullopt;
    return Store(std::move(canonical));
  }

  // The manifest of `name`, or nothing if the model is not in this store.
  Result<std::optional<fs::path>> FindManifest(const OllamaName& name) const {
    const fs::path path = root_ / "manifests" / name.host / name.name_space / name.model / name.tag;
    RL_ASSIGN_OR_RETURN(std::optional<fs::path> found, Canonical(path));
    return found;
  }

  // Error store.blob_missing unless the blob exists, can be read and has `bytes` bytes (if given).
  Result<fs::path> FindBlob(const std::string& blob, std::optional<uint64_t> bytes) const {
    const fs::path path = root_ / "blobs" / blob;
    RL_ASSIGN_OR_RETURN(std::optional<fs::path> found, Canonical(path));
    if (!found) {
      return MakeError(ErrorKind::kModelFile, "store.blob_missing",
                       "the manifest names '{}', which does not exist; pull the model again",
                       path.string());
    }
    RL_ASSIGN_OR_RETURN(const MmapFile file, Map(*found));
    if (bytes && file.bytes().size() != *bytes) {
      return MakeError(ErrorKind::kModelFile, "store.blob_missing",
                       "'{}' has {} bytes, but the manifest says {}; pull the model again",
                       path.string(), file.bytes().size(), *bytes);
    }
    return *std::move(found);
  }

  // The content of a file of the store other than a model: JSON or text.
  static Result<std::string> ReadSmall(const fs::path& path) {
    RL_ASSIGN_OR_RETURN(const MmapFile file, Map(path));
    if (file.bytes().size() > gguf_internal::kMaxStoreJsonBytes) {
      return MakeError(ErrorKind::kModelFile, "store.manifest",
                       "'{}' has {} bytes, expected at most {}; pull the model again",
                       path.string(), file.bytes().size(), gguf_internal::kMaxStoreJsonBytes);
    }
    return std::string(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  }

 private:
  explicit Store(fs::path root) : root_(std::move(root)) {}

  // Links resolved; nothing if the file does not exist; error store.name if it is outside.
  Result<std::optional<fs::path>> Canonical(const fs::path& path) const {
    std::error_code failure;
    fs::path canonical = fs::canonical(path, failure);
    if (failure == std::errc::permission_denied) return NoPermission(path);
    if (failure) return std::nullopt;
    if (!IsInside(canonical, root_)) {
      return MakeError(ErrorKind::kModelFile, "store.name",
                       "'{}' is a link to '{}', outside the store; set OLLAMA_MODELS to where the "
                       "models are, or give the path of the .gguf file",
                       path.string(), canonical.string());
    }
    return canonical;
  }

  static Result<MmapFile> Map(const fs::path& path) {
    auto file = MmapFile::Open(path);
    if (!file && file.error().id == "io.permission") return NoPermission(path);
    std::error_code failure;
    if (!file && fs::is_directory(path, failure)) {
      return MakeError(ErrorKind::kModelFile, "store.manifest",
                       "'{}' is a directory, expected a file; pull the model again", path.string());
    }
    return file;
  }

  fs::path root_;
};

Status AddLayer(const Store& store, const gguf_internal::OllamaLayer& layer, OllamaModel& model) {
  if (layer.role == LayerRole::kIgnored) return OkStatus();
  RL_ASSIGN_OR_RETURN(fs::path blob, store.FindBlob(layer.blob, layer.bytes));
  switch (layer.role) {
    case LayerRole::kModel:
      model.model = std::move(blob);
      break;
    case LayerRole::kProjector:
      model.projector = std::move(blob);
      break;
    case LayerRole::kAdapter:
      model.adapters.push_back(std::move(blob));
      break;
    case LayerRole::kDraft:
      model.draft = std::move(blob);
      break;
    case LayerRole::kParams: {
      RL_ASSIGN_OR_RETURN(model.params_json, Store::ReadSmall(blob));
      RL_ASSIGN_OR_RETURN(model.params, gguf_internal::ParseOllamaParams(model.params_json));
      break;
    }
    case LayerRole::kSystem: {
      RL_ASSIGN_OR_RETURN(std::string text, Store::ReadSmall(blob));
      if (FindInvalidUtf8(text)) {
        return MakeError(ErrorKind::kModelFile, "store.system",
                         "the system prompt '{}' is not UTF-8 text; pull the model again",
                         blob.string());
      }
      if (!text.empty()) model.system = std::move(text);
      break;
    }
    case LayerRole::kIgnored:
      break;
  }
  return OkStatus();
}

Result<OllamaModel> Load(const Store& store, const OllamaName& name, const fs::path& path) {
  RL_ASSIGN_OR_RETURN(const std::string text, Store::ReadSmall(path));
  auto manifest = gguf_internal::ParseOllamaManifest(text);
  if (!manifest) {
    return tl::unexpected(std::move(manifest).error().WithContext(
        fmt::format("model '{}', manifest '{}'", name.ToString(), path.string())));
  }
  OllamaModel model;
  model.name = name;
  RL_ASSIGN_OR_RETURN(const fs::path config, store.FindBlob(manifest->config_blob, std::nullopt));
  RL_ASSIGN_OR_RETURN(const std::string config_text, Store::ReadSmall(config));
  RL_RETURN_IF_ERROR(gguf_internal::ParseOllamaConfig(config_text, model));
  for (const auto& layer : manifest->layers) RL_RETURN_IF_ERROR(AddLayer(store, layer, model));
  return model;
}

// Returns nothing if the model is not in this store.
Result<std::optional<OllamaModel>> ResolveIn(const fs::path& root, const OllamaName& name) {
  RL_ASSIGN_OR_RETURN(const std::optional<Store> store, Store::Open(root));
  if (!store) return std::nullopt;
  RL_ASSIGN_OR_RETURN(const std::optional<fs::path> manifest, store->FindManifest(name));
  if (!manifest) return std::nullopt;
  RL_ASSIGN_OR_RETURN(OllamaModel model, Load(*store, name, *manifest));
  return model;
}

}  // namespace

OllamaStoreOptions OllamaStoreOptions::FromEnvironment() {
  OllamaStoreOptions options;
  if (const char* models = std::getenv("OLLAMA_MODELS"); models != nullptr && *models != '\0') {
    options.roots.emplace_back(models);
    return options;
  }
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0') {
    options.roots.push_back(fs::path(home) / ".ollama" / "models");
  }
  options.roots.emplace_back(kServiceRoot);
  return options;
}

Result<OllamaModel> ResolveOllamaModel(std::string_view text, const OllamaStoreOptions& options) {
  RL_ASSIGN_OR_RETURN(const OllamaName name, ParseOllamaName(text));
  std::optional<Error> denied;
  std::string searched;
  for (const fs::path& root : options.roots) {
    searched += (searched.empty() ? "'" : ", '") + root.string() + "'";
    auto model = ResolveIn(root, name);
    if (model && *model) return **std::move(model);
    if (model) continue;
    // A store that we may not read does not hide the same model in the next one.
    if (model.error().id != "io.permission") return tl::unexpected(std::move(model).error());
    if (!denied) denied = std::move(model).error();
  }
  if (denied) return tl::unexpected(*std::move(denied));
  return MakeError(
      ErrorKind::kModelFile, "store.not_found",
      "model '{}' is not in {}; download it with 'rullama pull {}', set OLLAMA_MODELS to "
      "the store that has it, or give the path of a .gguf file",
      name.ToString(), searched.empty() ? "any store" : searched, text);
}

}  // namespace rullama
