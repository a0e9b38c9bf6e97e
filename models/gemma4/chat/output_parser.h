// Splits what the model writes into content, thoughts and tool calls, as it arrives.
//
// Feed it text with the markers visible (Detokenizer with show_control), in pieces of any size: how
// the text is cut never changes what comes out. Time is linear in the text.
// Thread safety: one thread at a time.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace rullama::gemma4 {

struct ToolCall {
  std::string name;
  nlohmann::json arguments;  // an object
};

struct OutputEvent {
  enum class Kind { kContent, kThinking, kToolCall };
  Kind kind = Kind::kContent;
  std::string text;  // of content and thoughts
  ToolCall call;     // of a tool call
  // Content that is a tool call which could not be understood, markers included.
  bool malformed_call = false;
};

struct OutputParserOptions {
  // Report thoughts. If off they are dropped, as are the empty ones that models write nevertheless.
  bool report_thinking = true;
  // The prompt ended inside an open thought (after a tool's result with thinking on).
  bool starts_in_thought = false;
};

class OutputParser {
 public:
  explicit OutputParser(const OutputParserOptions& options = {});

  // Returns the events that `text` completes. White space next to markers is dropped, so it may
  // come with a later call.
  std::vector<OutputEvent> Feed(std::string_view text);

  // The end of the output: closes an open thought or call. Ready for another output.
  std::vector<OutputEvent> Finish();

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
