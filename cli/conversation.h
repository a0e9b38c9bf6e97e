// A conversation with the model: its messages, and how much of them the context holds.
// Thread safety: one thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/answer.h"

namespace rullama::cli {

// A conversation of messages. With the setting `raw` there are no messages: each text is continued
// on its own.
class Conversation {
 public:
  // All three arguments must outlive this object.
  Conversation(ModelSession& engine, const AnswerOptions& options, Console& console);

  // Writes the model's answer to `text` as the options say. If the context is too small for the
  // conversation, the oldest turns are dropped, with a warning; the system prompt stays. After an
  // error the conversation is as before the call. Errors: context.overflow if the text alone does
  // not fit; those of GenerateAnswer.
  Result<Answer> Say(const std::string& text);

  // Begins anew; the system prompt stays.
  void Clear();
  // An empty text is no system prompt.
  void SetSystem(const std::string& text);
  void SetThinking(bool thinking);

 private:
  [[nodiscard]] bool has_system() const;
  [[nodiscard]] int64_t canvas_length() const;  // 0 for a model that writes token by token
  // Tokens that an answer should find free.
  [[nodiscard]] int64_t Reserve() const;
  // The tokens of the conversation after dropping what does not fit.
  Result<std::vector<int32_t>> FittedTokens();
  [[nodiscard]] Error TooLong(size_t tokens) const;
  Result<Answer> AnswerTo(const std::vector<int32_t>& ids);

  ModelSession& engine_;
  AnswerOptions options_;
  Console& console_;
  nlohmann::json messages_;
  std::vector<int32_t> cached_;  // the tokens whose rows slot 0 holds
};

}  // namespace rullama::cli
