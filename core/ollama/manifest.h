// The JSON files of an Ollama store, validated. Internal to core/ollama; use ResolveOllamaModel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/ollama/store.h"

namespace rullama::gguf_internal {

// Real manifests have a few kilobytes.
inline constexpr size_t kMaxStoreJsonBytes = size_t{1} << 20;

// The role of a layer of a manifest.
enum class LayerRole { kModel, kProjector, kAdapter, kDraft, kParams, kSystem, kIgnored };

struct OllamaLayer {
  LayerRole role;
  std::string blob;  // file name in blobs/: "sha256-<64 hex digits>"
  uint64_t bytes;
};

struct OllamaManifest {
  std::string config_blob;
  std::vector<OllamaLayer> layers;  // exactly one with role kModel
};

// Errors: store.manifest, store.digest, store.not_gguf.
Result<OllamaManifest> ParseOllamaManifest(std::string_view json);

// "sha256:<hex>" or "sha256-<hex>" with 64 lower-case hex digits becomes the name of a blob.
// Registries write lower case; on a file system that distinguishes case anything else is not found.
Result<std::string> BlobName(std::string_view digest);

// Fills the labels of `model` from its config. Errors: store.manifest, store.not_gguf.
Status ParseOllamaConfig(std::string_view json, OllamaModel& model);

// Error store.params for a text that is not a JSON object, or a setting of the wrong type.
Result<OllamaParams> ParseOllamaParams(std::string_view json);

}  // namespace rullama::gguf_internal
