// The parser of what Gemma 4 writes. Thread safety: one thread at a time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/common/chat/marked_output_parser.h"

namespace rullama::gemma4 {

class OutputParser final : public chat::MarkedOutputParser {
 public:
  explicit OutputParser(const OutputParserOptions& options = {});

  std::vector<OutputEvent> Finish() override;

 private:
  enum class State { kContent, kChannelName, kThinking, kCall };

  [[nodiscard]] bool IsActive(std::string_view marker) const override;
  [[nodiscard]] bool IsInCall() const override { return state_ == State::kCall; }
  void Marker(std::string_view marker) override;
  void OrdinaryByte(char byte) override;
  void ChannelNameByte(char byte);
  void TextByte(char byte);
  void Append(OutputEvent::Kind kind, std::string_view text);
  void EnterContent(bool after_call);
  void EnterCall();
  void EndCall(std::string_view marker);

  OutputParserOptions options_;
  State state_ = State::kContent;
  std::string space_;        // white space that a marker would swallow
  std::string name_;         // what has come of the channel's name
  std::string call_;         // inside of the call
  bool skip_space_ = false;  // after a marker
  bool after_call_ = false;  // nothing but white space since a call
  bool in_string_ = false;   // of a call: markers are text there
};

}  // namespace rullama::gemma4
