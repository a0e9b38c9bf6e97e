// Names of models on the Hugging Face Hub: USER/REPO[:QUANT], with or without its host.
// Thread safety: value types and pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/base/status.h"

namespace rullama::downloads {

struct HubName {
  std::string repo;   // "USER/REPO": both parts are safe in paths
  std::string quant;  // "Q4_K_M"; empty: a usual one
  // "hf.co/USER/REPO:QUANT", a name for -m
  [[nodiscard]] std::string ToString() const;
};

// "USER/REPO:QUANT", which may come after "hf.co/" and the like (AfterHubHost). Error pull.name
// (kUsage).
Result<HubName> ParseHubName(std::string_view words);

// The name after "hf.co/" or "huggingface.co/", with or without "https://"; nothing for other
// texts.
std::optional<std::string_view> AfterHubHost(std::string_view text);

// A revision: a branch, a tag or a commit, safe in paths. Error pull.name (kUsage).
Status CheckRevision(std::string_view revision);

// Whether a path of a repository stays inside its folder and can be shown: parts between slashes
// that are neither empty nor "." nor "..", no backslash, no control character, a part of at most
// 255 bytes and 1,024 in all.
bool IsSafePath(std::string_view path);

}  // namespace rullama::downloads
