#include "engine/system_prompt.h"

#include <nlohmann/json.hpp>

namespace rullama {

void AddSystemPrompt(const Config& config, nlohmann::json& messages) {
  const auto& system = config.generation.system;
  if (!system || system->empty()) return;
  const bool has_one =
      messages.is_array() && !messages.empty() && messages[0].is_object() &&
      (messages[0].value("role", "") == "system" || messages[0].value("role", "") == "developer");
  if (has_one) return;
  messages.insert(messages.begin(), nlohmann::json{{"role", "system"}, {"content", *system}});
}

}  // namespace rullama
