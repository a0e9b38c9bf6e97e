// Turns the tokens of an answer into what readers see: text without markers, thoughts and tool
// calls apart, cut in front of a stop text.
//
// Ownership: borrows the tokenizer. Thread safety: one thread per object.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/tokenizer/detokenizer.h"
#include "engine/api/request.h"
#include "engine/stop_text.h"
#include "models/gemma4/chat/output_parser.h"

namespace rullama {

struct AnswerTextOptions {
  bool chat = false;      // the output has thoughts and tool calls in markers
  bool thinking = false;  // report thoughts
  std::vector<std::string> stop = {};
};

class AnswerText {
 public:
  AnswerText(const Tokenizer& tokenizer, AnswerTextOptions options);

  // Appends the events that a token completes. Error tokenizer.id.
  Status Push(int32_t token, std::deque<Event>& events);
  // Appends what was held back, at the end.
  void Finish(std::deque<Event>& events);
  // Whether a stop text was found; nothing comes after it.
  [[nodiscard]] bool stopped() const { return stop_.found(); }

 private:
  void Take(std::string_view piece, std::deque<Event>& events);
  void TakeParsed(const std::vector<gemma4::OutputEvent>& parsed, std::deque<Event>& events);
  static void Emit(std::string text, std::deque<Event>& events);

  AnswerTextOptions options_;
  Detokenizer detokenizer_;
  gemma4::OutputParser parser_;
  StopText stop_;
};

}  // namespace rullama
