#include "engine/chat_tokens.h"

#include <nlohmann/json.hpp>
#include <string_view>

#include "engine/model_facts.h"
#include "models/gemma4/chat/encoding.h"
#include "models/gemma4/chat/template.h"

namespace rullama {

Result<std::vector<int32_t>> ChatTokens(const LoadedModel& model, const nlohmann::json& messages,
                                        const nlohmann::json& tools, bool thinking) {
  RL_RETURN_IF_ERROR(gemma4::CheckChatMarkers(*model.tokenizer));
  gemma4::ChatOptions options;
  options.enable_thinking = thinking;
  const GgufFile& file = *model.file.file;
  RL_ASSIGN_OR_RETURN(const auto name, file.FindString("general.name"));
  options.variant =
      gemma4::VariantForModel(name.value_or(std::string_view()), ParameterCount(file));
  RL_ASSIGN_OR_RETURN(const gemma4::ChatPrompt prompt,
                      gemma4::RenderChat(messages, tools, options));
  return gemma4::EncodePrompt(*model.tokenizer, prompt);
}

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
