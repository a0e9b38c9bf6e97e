#include "models/gemma4/chat/output_parser.h"

#include <algorithm>
#include <array>
#include <utility>

#include "models/gemma4/chat/markers.h"
#include "models/gemma4/chat/output_parser_call.h"

namespace rullama::gemma4 {
namespace {

constexpr auto kMarkers =
    std::to_array<std::string_view>({kChannelBegin, kChannelEnd, kToolCallBegin, kToolCallEnd,
                                     kToolResponseBegin, kStringDelimiter});

constexpr std::string_view kChannelName = "thought\n";

bool IsSpace(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

}  // namespace

OutputParser::OutputParser(const OutputParserOptions& options)
    : MarkedOutputParser(kMarkers), options_(options) {
  if (options_.starts_in_thought) state_ = State::kThinking;
}

std::vector<OutputEvent> OutputParser::Finish() {
  FlushPartial();
  switch (state_) {
    case State::kCall:
      EndCall({});
      break;
    case State::kContent:
      Append(OutputEvent::Kind::kContent, space_);
      break;
    case State::kChannelName:
      // Part of a name other than the expected one is a thought; the name itself is not.
      if (name_ != kThoughtChannel) Append(OutputEvent::Kind::kThinking, name_);
      break;
    case State::kThinking:
      break;
  }
  auto events = TakeEvents();
  *this = OutputParser(options_);
  return events;
}

bool OutputParser::IsActive(std::string_view marker) const {
  if (state_ == State::kCall) {
    if (marker == kStringDelimiter) return true;
    return !in_string_ && (marker == kToolCallEnd || marker == kToolCallBegin);
  }
  if (marker == kToolCallEnd || marker == kToolResponseBegin) return after_call_;
  return marker != kStringDelimiter;
}

void OutputParser::Marker(std::string_view marker) {
  if (state_ == State::kCall) {
    if (marker == kStringDelimiter) {
      in_string_ = !in_string_;
      call_ += marker;
      return;
    }
    EndCall(marker == kToolCallEnd ? marker : std::string_view());
    EnterContent(/*after_call=*/true);
    if (marker == kToolCallBegin) EnterCall();
    return;
  }
  if (state_ == State::kChannelName && name_ != kThoughtChannel) {
    Append(OutputEvent::Kind::kThinking, name_);
  }
  if (marker == kToolCallBegin) {
    EnterCall();
  } else if (marker == kChannelBegin) {
    EnterContent(/*after_call=*/false);
    state_ = State::kChannelName;
    name_.clear();
  } else {
    EnterContent(after_call_);
  }
}

void OutputParser::OrdinaryByte(char byte) {
  switch (state_) {
    case State::kCall:
      call_ += byte;
      return;
    case State::kChannelName:
      ChannelNameByte(byte);
      return;
    case State::kContent:
    case State::kThinking:
      TextByte(byte);
      return;
  }
}

void OutputParser::ChannelNameByte(char byte) {
  name_ += byte;
  if (kChannelName.starts_with(name_) && name_.size() < kChannelName.size()) return;
  state_ = State::kThinking;
  if (name_ == kChannelName) return;
  for (const char text : std::exchange(name_, {})) TextByte(text);
}

void OutputParser::TextByte(char byte) {
  if (IsSpace(byte)) {
    if (!skip_space_) space_ += byte;
    return;
  }
  const auto kind =
      state_ == State::kThinking ? OutputEvent::Kind::kThinking : OutputEvent::Kind::kContent;
  Append(kind, space_);
  Append(kind, {&byte, 1});
  space_.clear();
  skip_space_ = false;
  after_call_ = false;
}

void OutputParser::Append(OutputEvent::Kind kind, std::string_view text) {
  if (text.empty()) return;
  if (kind == OutputEvent::Kind::kThinking && !options_.report_thinking) return;
  if (events().empty() || events().back().kind != kind || events().back().malformed_call) {
    events().emplace_back().kind = kind;
  }
  events().back().text += text;
}

void OutputParser::EnterContent(bool after_call) {
  state_ = State::kContent;
  space_.clear();
  skip_space_ = true;
  after_call_ = after_call;
}

void OutputParser::EnterCall() {
  state_ = State::kCall;
  space_.clear();
  call_.clear();
  in_string_ = false;
}

void OutputParser::EndCall(std::string_view marker) {
  OutputEvent& event = events().emplace_back();
  if (auto call = ParseToolCall(call_)) {
    event.kind = OutputEvent::Kind::kToolCall;
    event.call = *std::move(call);
    return;
  }
  event.malformed_call = true;
  event.text = kToolCallBegin;
  event.text += call_;
  event.text += marker;
}

}  // namespace rullama::gemma4
