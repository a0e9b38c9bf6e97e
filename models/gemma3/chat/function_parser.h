// The parser of what FunctionGemma writes: text, and calls of functions. A block that is not a call
// of the notation is content, byte for byte. White space at the ends of the text is dropped, and a
// marker that ends the answer ends it.
// Thread safety: one thread at a time.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/common/chat/marked_output_parser.h"

namespace rullama::gemma3 {

// The inside of a call, between its markers. Nothing if it is not one.
std::optional<ParsedCall> ParseFunctionCall(std::string_view text);

class FunctionParser final : public chat::MarkedOutputParser {
 public:
  FunctionParser();

  std::vector<OutputEvent> Finish() override;

 private:
  enum class State { kContent, kCall, kEnded };

  [[nodiscard]] bool IsActive(std::string_view marker) const override;
  [[nodiscard]] bool IsInCall() const override { return state_ == State::kCall; }
  void Marker(std::string_view marker) override;
  void OrdinaryByte(char byte) override;
  void Content(std::string_view text);
  // `marker`: the end of the call as it was written.
  void EndCall(std::string_view marker);

  State state_ = State::kContent;
  std::string space_;         // white space that is content if content follows
  std::string call_;          // inside of the call
  bool has_content_ = false;  // something other than white space has come
  bool has_calls_ = false;
};

}  // namespace rullama::gemma3
