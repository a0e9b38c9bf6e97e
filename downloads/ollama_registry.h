// Plans the download of a model of a registry that speaks Ollama's protocol, and reads what such a
// registry answers. The parts that read texts are pure functions.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/ollama/name.h"
#include "downloads/file_fetch.h"
#include "downloads/pull_plan.h"

namespace rullama::downloads {

// A name as Ollama's parser takes it, without a scheme. Error pull.name (kUsage).
Result<OllamaName> ParseRegistryName(std::string_view text);

struct RegistryBlob {
  std::string kind;  // "config", "model", "projector", "template", ...
  std::string hex;   // SHA-256
  uint64_t bytes = 0;
};
// The blobs of a manifest: its config and its layers, of which one is the model. Error
// pull.protocol.
Result<std::vector<RegistryBlob>> ReadRegistryManifest(std::string_view json);

// The parts of a field "WWW-Authenticate: Bearer realm=...".
struct BearerChallenge {
  std::string realm;
  std::string service;
  std::string scope;
};
std::optional<BearerChallenge> ParseChallenge(std::string_view text);

// The token in the answer of a realm. Error pull.protocol.
Result<std::string> ReadRegistryToken(std::string_view json);

// Writes nothing. `store` is the folder with manifests/ and blobs/. The plan may ask for tokens
// through `connection`, which outlives it. Errors: run.cancelled, pull.*.
Result<PullPlan> PlanOllamaPull(const OllamaName& name, const std::filesystem::path& store,
                                PullConnection& connection);

}  // namespace rullama::downloads
