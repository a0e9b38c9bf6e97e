// Finds models that Ollama has already downloaded, without talking to Ollama or to the network.
//
// A store holds manifests/HOST/NAMESPACE/MODEL/TAG, a JSON file that lists layers by digest, and
// blobs/sha256-HEX, the layers. Both come from the network: digests are checked before they become
// paths, JSON is limited in size and depth, and no path may leave the store, not even by a link.
//
// Thread safety: pure functions of their arguments and the file system.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/ollama/name.h"

namespace rullama {

struct OllamaStoreOptions {
  // Searched in this order; those that do not exist are passed over.
  std::vector<std::filesystem::path> roots;

  // $OLLAMA_MODELS alone if it is set; otherwise ~/.ollama/models and the folder of the Linux
  // service, /usr/share/ollama/.ollama/models.
  static OllamaStoreOptions FromEnvironment();
};

// Sampling settings that the author of the model recommends.
struct OllamaParams {
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<int64_t> top_k;
  std::vector<std::string> stop;
};

struct OllamaModel {
  OllamaName name;
  std::filesystem::path model;                     // the GGUF file, absolute
  std::optional<std::filesystem::path> projector;  // a separate file of the towers
  std::vector<std::filesystem::path> adapters;     // LoRA files, in order
  std::optional<std::filesystem::path> draft;      // a drafter for speculative decoding
  OllamaParams params;
  std::optional<std::string> system;  // the system prompt of the author: UTF-8, not empty
  std::string params_json;            // the params layer as it is; empty if there is none
  std::string model_family;  // the following come from the config and are labels only: "gemma4"
  std::string model_type;    // "5.1B"
  std::string file_type;     // "Q4_K_M"
  std::string renderer;      // "gemma4", the chat template built into Ollama
};

// Errors of kind kModelFile: store.name (not a name, or a link leaves the store), store.not_found
// (no such model in any root), store.manifest (a JSON file of the store is invalid), store.digest,
// store.blob_missing (missing or of wrong size), store.not_gguf (safetensors or unknown layers),
// store.params, store.system (no UTF-8 text). Kind kIo: io.permission, with a hint how to get
// access, io.open.
Result<OllamaModel> ResolveOllamaModel(std::string_view name, const OllamaStoreOptions& options);

}  // namespace rullama
