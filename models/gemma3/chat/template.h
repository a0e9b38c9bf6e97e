// Renders a conversation as the prompt Gemma 3 was trained on: a native form of Google's chat
// template. System text stands before the first user's turn; there are no tools and no
// thoughts. The model was trained on turns that alternate, so messages of one side that follow one
// another become one turn, as in Ollama, and system text before a greeting a turn of its own.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "core/base/status.h"
#include "models/common/chat.h"
#include "models/common/chat/encoding.h"
#include "models/common/chat/prompt.h"

namespace rullama::gemma3 {

inline constexpr chat::TurnMarkers kTurnMarkers = {.begin = "<start_of_turn>",
                                                   .end = "<end_of_turn>",
                                                   .family = "Gemma 3",
                                                   .system_in_first_turn = true};

// A picture in a prompt. The text around it becomes tokens together with its neighbours'.
inline constexpr MediaMarkers kPictureMarkers = {.begin = "<start_of_image>",
                                                 .placeholder = "<start_of_image>",
                                                 .end = "<end_of_image>",
                                                 .before = "\n\n",
                                                 .after = "\n\n"};

enum class ChatForm : uint8_t {
  kTurns,
  // A base model, which has seen no turns: the texts of the messages one after the other, which the
  // model continues. A user's text after an answer begins a line. Of an example, each learnt answer
  // ends the text.
  kContinuation,
  kFunctions,    // FunctionGemma (function_template.h)
  kTranslation,  // TranslateGemma (translation.h)
};

struct ChatOptions {
  ChatForm form = ChatForm::kTurns;
  bool add_generation_prompt = true;
  // The model continues the last message, which is the assistant's, within its turn; then there is
  // no generation prompt.
  bool continue_last = false;
  // Other than kNone: the conversation is an example to learn from, which ends with the marker that
  // ends the last turn.
  TrainedTurns trained = TrainedTurns::kNone;
};

// Whether a part of a message is a picture.
bool IsPicture(const nlohmann::json& part);
// Writes the place of a picture.
void WritePicture(chat::PromptWriter& out);
// Whether the content of a message is text and pictures; of an example to learn from, text alone.
// Error chat.content (kUsage).
Status CheckParts(const nlohmann::json& content, bool is_example, const std::string& path);
// Whether the content of a message is text alone. Error chat.content (kUsage).
Status CheckTextParts(const nlohmann::json& content, const std::string& path);

// The prompt of a conversation in the form of the options. Errors: those of the form's function.
Result<chat::ChatPrompt> Render(const nlohmann::json& messages, const nlohmann::json& tools,
                                const ChatOptions& options);

// `messages` are those of chat::CheckMessages. Errors (kUsage), each naming the place: those of
// CheckMessages; chat.messages (system text alone), chat.content (sound), chat.tools (any),
// chat.continue.
Result<chat::ChatPrompt> RenderChat(const nlohmann::json& messages, const nlohmann::json& tools,
                                    const ChatOptions& options);

// What RenderChat() makes of turns, as a template for Jinja that needs `messages` and
// `add_generation_prompt` alone.
std::string JinjaTemplate();

}  // namespace rullama::gemma3
