// Renders a conversation as the prompt Gemma 4 was trained on: a native form of Google's chat
// template of kTemplateDay.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/base/status.h"
#include "models/common/chat.h"
#include "models/common/chat/prompt.h"

namespace rullama::gemma4 {

inline constexpr std::string_view kTemplateDay = "2026-07-09";

// The published templates differ in one place: with thinking off, that of the larger models (12B,
// 26B, 31B) puts an empty thought after the generation prompt; that of E2B and E4B does not.
enum class ChatVariant { kSmall, kLarge };

struct ChatOptions {
  ChatVariant variant = ChatVariant::kSmall;
  bool enable_thinking = false;
  // Show the model its earlier thoughts that led to tool calls, not only those of the current turn.
  bool preserve_thinking = false;
  bool add_generation_prompt = true;
  // The model continues the last message, which is the assistant's, within its turn; then there is
  // no generation prompt.
  bool continue_last = false;
  // Other than kNone: the conversation is an example to learn from. It ends with the marker that
  // ends the last turn, and an empty thought that generation would begin with is before the
  // last turn of the assistant. Reasoning is left out unless thinking is enabled.
  TrainedTurns trained = TrainedTurns::kNone;
};

// `messages` are those of chat::CheckMessages; arguments of tool_calls are an object, or a string
// that holds one. `tools` has the shape of the OpenAI chat API and may be null. Errors: those of
// CheckMessages; chat.tools (kUsage); chat.continue.
Result<chat::ChatPrompt> RenderChat(const nlohmann::json& messages, const nlohmann::json& tools,
                                    const ChatOptions& options);

// What RenderChat() makes of texts without tools and thoughts, as a template for Jinja that needs
// `messages` and `add_generation_prompt` alone.
std::string JinjaTemplate(ChatVariant variant);

// The variant for a model: by the size in its name ("gemma-4-E2B-it"), else by parameter count.
ChatVariant VariantForModel(std::string_view name, uint64_t parameters);

}  // namespace rullama::gemma4
