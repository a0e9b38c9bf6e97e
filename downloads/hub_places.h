// Where the Hub is and where its cache lies, as huggingface_hub reads the environment. Both
// programs share the cache. Thread safety: value types; functions of the environment and the file
// system.
#pragma once

#include <filesystem>
#include <string>

#include "core/base/status.h"

namespace rullama::downloads {

// After the name of a blob that is not whole yet. huggingface_hub has ".incomplete".
inline constexpr const char* kHubPartialSuffix = ".rullama.incomplete";

struct HubPlaces {
  std::string endpoint;         // "https://huggingface.co", without a slash at its end
  std::filesystem::path cache;  // folders models--USER--REPO
  bool offline = false;         // HF_HUB_OFFLINE
  const char* (*getenv)(const char*) = nullptr;

  static HubPlaces FromEnvironment(const char* (*getenv)(const char*));

  // The folder of a repository, and of its locks.
  [[nodiscard]] std::filesystem::path FolderOf(const std::string& repo) const;
  [[nodiscard]] std::filesystem::path LocksOf(const std::string& repo) const;

  // The token of the user: HF_TOKEN, else the file HF_TOKEN_PATH, else $HF_HOME/token; empty if
  // there is none. Error pull.unauthorized if it cannot be a token.
  [[nodiscard]] Result<std::string> Token() const;
};

}  // namespace rullama::downloads
