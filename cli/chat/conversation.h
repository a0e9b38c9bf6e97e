// A conversation with the model: its messages, and how much of them the context holds.
// Thread safety: one thread.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/chat/answer.h"
#include "cli/chat/media_input.h"

namespace rullama::cli {

// A conversation of messages. With the setting `raw` there are no messages: each text is continued
// on its own.
class Conversation {
 public:
  // `request` is what every turn asks for, but for the prompt. The others must outlive this object.
  Conversation(Engine& engine, Request request, const AnswerView& view, Console& console);

  // Puts a picture, a sound or a video before the text of the next message. Errors: those of
  // Engine::Submit that are about it.
  Status Attach(Attachment attachment);

  // Shows the model's answer to `text` on the view. If the context is too small for the
  // conversation, the oldest turns are dropped, with a warning; the system prompt stays. After an
  // error the conversation is as before the call, without what was attached. Errors:
  // context.overflow if the text alone does not fit; those of GenerateAnswer.
  Result<Answer> Say(const std::string& text);

  // Writes another answer to the last message, in the place of the one that there is. Errors:
  // chat.command if there is none; else as Say(), and the answer stays.
  Result<Answer> SayAgain();

  // Begins anew; the system prompt stays.
  void Clear();
  // Writes the messages to a file. Errors: chat.command if they have pictures or sounds; io.*.
  Status Save(const std::string& path) const;
  // Continues from the messages of a file, which replace these. Errors, with which nothing changes:
  // io.*, input.limit; chat.* for a file without a conversation; context.overflow.
  Status Load(const std::string& path);
  // An empty text means no system prompt.
  void SetSystem(const std::string& text);
  void SetThinking(bool thinking);
  // Settings of the next answers. False if there is no such setting. Errors: chat.setting,
  // sampler.range.
  Result<bool> SetAnswers(std::string_view name, std::string_view value);

 private:
  // Error chat.command if the conversation has no messages, but raw text.
  [[nodiscard]] Status CheckHasMessages() const;
  // Whether text is continued as it is, without messages.
  [[nodiscard]] bool is_raw() const;
  [[nodiscard]] bool has_system() const;
  // Tokens that an answer should find free.
  [[nodiscard]] int64_t Reserve() const;
  // The request for the next turn, after dropping the messages that do not fit.
  Result<Request> FittedRequest();
  // The media of messages, in their order.
  [[nodiscard]] std::vector<Medium> MediaOfMessages(const nlohmann::json& messages) const;
  // The view of the answers, which names the attachments of the last message.
  [[nodiscard]] AnswerView ViewOf(std::span<const Attachment> attachments) const;
  [[nodiscard]] Error TooLong(int64_t tokens) const;

  Engine& engine_;
  Request request_;
  const AnswerView& view_;
  Console& console_;
  // The part of an attachment in a message has the index of its first medium in media_ as the
  // member "medium".
  nlohmann::json messages_;
  std::vector<Medium> media_;
  std::vector<Attachment> attached_;  // to the next message
};

}  // namespace rullama::cli
