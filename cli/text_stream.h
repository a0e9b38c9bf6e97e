// Hands the text that the engine makes of an answer's tokens to the callbacks of the answer.
// Thread safety: one thread per object.
#pragma once

#include <deque>

#include "cli/answer.h"
#include "engine/answer_text.h"

namespace rullama::cli {

// Text goes to the callbacks of the options and, with the tokens, into the answer. All three
// outlive this object. Errors: of the callbacks and of AnswerText.
class TextStream {
 public:
  TextStream(const ModelSession& engine, const AnswerOptions& options, Answer& answer);

  Status Push(int32_t token);
  // Writes the text that was held back, at the end.
  Status Finish();
  // Whether a stop text was found; nothing comes after it.
  [[nodiscard]] bool stopped() const { return text_.stopped(); }

 private:
  Status Deliver(const Event& event);
  Status DeliverAll();

  const AnswerOptions& options_;
  Answer& answer_;
  AnswerText text_;
  std::deque<Event> events_;  // not yet delivered
};

}  // namespace rullama::cli
