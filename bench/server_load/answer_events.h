// A reader of the events of a streamed answer (/v1/chat/completions).
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace rullama::bench {

class AnswerEvents {
 public:
  // Takes the next bytes of the body, cut anywhere. Returns how many of the events that ended in
  // them have text of the answer. Errors: std::runtime_error for an event that is not JSON, or that
  // is the server's error.
  int Take(std::string_view bytes);

  // The counts of the last event with a usage; 0 before.
  [[nodiscard]] int64_t tokens() const { return tokens_; }
  [[nodiscard]] int64_t prompt_tokens() const { return prompt_tokens_; }
  // Whether the stream has ended as streams do, with [DONE].
  [[nodiscard]] bool done() const { return done_; }

 private:
  bool HasText(std::string_view event);

  std::string begun_;  // a line that has not ended
  int64_t tokens_ = 0, prompt_tokens_ = 0;
  bool done_ = false;
};

}  // namespace rullama::bench
