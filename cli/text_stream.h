// Turns tokens into what the reader sees: text without markers, cut in front of a stop text.
// Thread safety: one thread per object.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/answer.h"
#include "core/tokenizer/detokenizer.h"
#include "engine/stop_text.h"
#include "models/common/chat.h"

namespace rullama::cli {

// Text goes to the callbacks of the options and into the answer. All three outlive this object.
// Errors: of the callbacks and of the detokenizer.
class TextStream {
 public:
  TextStream(const ModelSession& engine, const AnswerOptions& options, Answer& answer);

  Status Push(int32_t token);
  // Writes the text that was held back, at the end.
  Status Finish();
  // Whether a stop text was found; nothing comes after it.
  [[nodiscard]] bool stopped() const { return stop_.found(); }

 private:
  Status Take(std::string_view piece);
  Status TakeEvents(const std::vector<OutputEvent>& events);
  Status Emit(const std::string& text);

  const AnswerOptions& options_;
  Answer& answer_;
  Detokenizer detokenizer_;
  std::unique_ptr<OutputParser> parser_;  // null: no chat
  StopText stop_;
};

}  // namespace rullama::cli
