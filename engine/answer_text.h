// Turns the tokens of an answer into what readers see: text without markers, thoughts and tool
// calls apart, cut before a stop text.
//
// Ownership: borrows the tokenizer. Thread safety: one thread per object.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/tokenizer/detokenizer.h"
#include "engine/api/request.h"
#include "engine/stop_text.h"
#include "models/common/chat.h"

namespace rullama {

struct AnswerTextOptions {
  // For an answer in a chat, which has thoughts and tool calls in markers; else null.
  std::unique_ptr<OutputParser> parser = {};
  std::vector<std::string> stop = {};
};

class AnswerText {
 public:
  AnswerText(const Tokenizer& tokenizer, AnswerTextOptions options);

  // Appends the events that a token completes; those of text carry the log-probabilities of their
  // tokens, if there are any. Error tokenizer.id.
  Status Push(int32_t token, std::optional<LogprobStep> logprobs, std::deque<Event>& events);
  // Appends what was held back, at the end.
  void Finish(std::deque<Event>& events);
  // The stop text that was found, or null; nothing comes after it.
  [[nodiscard]] const std::string* stopped() const { return stop_.found(); }
  // Tokens so far whose text was part of thoughts.
  [[nodiscard]] int64_t thought_tokens() const { return thought_tokens_; }

 private:
  void Take(std::string_view piece, std::deque<Event>& events);
  void TakeParsed(const std::vector<OutputEvent>& parsed, std::deque<Event>& events);
  // Text of the answer, before the search for stop texts.
  void TakeContent(std::string_view text, std::deque<Event>& events);
  void Emit(std::string text, std::deque<Event>& events);

  // A token of which no text has been handed out yet.
  struct HeldToken {
    LogprobStep logprobs;
    size_t begin = 0;  // of its text, in the bytes of content
  };

  const Tokenizer& tokenizer_;
  std::unique_ptr<OutputParser> parser_;  // null: the text is as the model writes it
  Detokenizer detokenizer_;
  StopText stop_;
  size_t content_bytes_ = 0;  // given to stop_
  size_t emitted_bytes_ = 0;  // of these, handed out
  int64_t unassigned_ = 0;    // tokens that gave neither content nor a thought so far
  int64_t thought_tokens_ = 0;
  std::vector<LogprobStep> undecided_;  // those of the unassigned tokens
  std::deque<HeldToken> held_;          // tokens of content
};

}  // namespace rullama
