#include "core/config/environment.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "core/config/yaml_tree.h"

namespace rullama {
namespace {

constexpr std::array<std::string_view, 6> kLogLevels = {"trace", "debug", "info",
                                                        "warn",  "error", "off"};

std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    // An empty part means the current directory elsewhere; here it means nothing.
    if (end > 0) parts.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

}  // namespace

Result<EnvironmentOverrides> ReadEnvironment(
    const std::function<const char*(const char* name)>& getenv, bool privileged) {
  const auto read = [&getenv](const char* name) -> std::optional<std::string> {
    const char* value = getenv(name);
    if (value == nullptr || *value == '\0') return std::nullopt;
    return std::string(value);
  };
  EnvironmentOverrides result;
  result.backend = read("RULLAMA_BACKEND");
  result.log_level = read("RULLAMA_LOG");
  if (const auto keys = read("RULLAMA_API_KEY")) result.api_keys = Split(*keys, ',');
  if (!privileged) {
    result.config_path = read("RULLAMA_CONFIG");
    if (const auto paths = read("RULLAMA_PLUGIN_PATH")) result.plugin_paths = Split(*paths, ':');
  }
  if (result.log_level &&
      std::find(kLogLevels.begin(), kLogLevels.end(), *result.log_level) == kLogLevels.end()) {
    return MakeError(ErrorKind::kUsage, "config.environment",
                     "RULLAMA_LOG: expected one of {}, found {}", fmt::join(kLogLevels, ", "),
                     QuoteForMessage(*result.log_level));
  }
  return result;
}

}  // namespace rullama
