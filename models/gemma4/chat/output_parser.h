// The parser of what Gemma 4 writes. Thread safety: one thread at a time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/common/chat.h"

namespace rullama::gemma4 {

class OutputParser final : public rullama::OutputParser {
 public:
  explicit OutputParser(const OutputParserOptions& options = {});

  std::vector<OutputEvent> Feed(std::string_view text) override;
  std::vector<OutputEvent> FeedText(std::string_view text) override;
  [[nodiscard]] bool Reads(std::string_view control) const override;
  std::vector<OutputEvent> Finish() override;

 private:
  enum class State { kContent, kChannelName, kThinking, kCall };

  void Byte(char byte);
  void MarkerByte(char byte);
  [[nodiscard]] bool IsActive(std::string_view marker) const;
  void Marker(std::string_view marker);
  void OrdinaryByte(char byte);
  void ChannelNameByte(char byte);
  void TextByte(char byte);
  void Append(OutputEvent::Kind kind, std::string_view text);
  void EnterContent(bool after_call);
  void EnterCall();
  void EndCall(std::string_view marker);

  OutputParserOptions options_;
  std::vector<OutputEvent> events_;  // not yet handed out
  State state_ = State::kContent;
  std::string partial_;      // may become a marker
  std::string space_;        // white space that a marker would swallow
  std::string name_;         // what has come of the channel's name
  std::string call_;         // inside of the call
  bool skip_space_ = false;  // after a marker
  bool after_call_ = false;  // nothing but white space since a call
  bool in_string_ = false;   // of a call: markers are text there
};

}  // namespace rullama::gemma4
