#include "engine/answer_text.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace rullama {

AnswerText::AnswerText(const Tokenizer& tokenizer, AnswerTextOptions options)
    : tokenizer_(tokenizer),
      parser_(std::move(options.parser)),
      detokenizer_(tokenizer, /*show_control=*/parser_ != nullptr),
      stop_(std::move(options.stop)) {}

Status AnswerText::Push(int32_t token, std::optional<LogprobStep> logprobs,
                        std::deque<Event>& events) {
  const bool is_marker =
      tokenizer_.Contains(token) && tokenizer_.kind(token) == TokenKind::kControl;
  if (parser_ && is_marker && !parser_->Reads(tokenizer_.TokenText(token))) return OkStatus();
  RL_ASSIGN_OR_RETURN(const std::string_view piece, detokenizer_.Push(token));
  ++unassigned_;
  if (logprobs) undecided_.push_back(*std::move(logprobs));
  // Text that merely looks like a marker stays text.
  if (parser_ && !is_marker) {
    TakeParsed(parser_->FeedText(piece), events);
  } else {
    Take(piece, events);
  }
  return OkStatus();
}

void AnswerText::Finish(std::deque<Event>& events) {
  Take(detokenizer_.Flush(), events);
  if (parser_) TakeParsed(parser_->Finish(), events);
  Emit(stop_.Finish(), events);
}

void AnswerText::Take(std::string_view piece, std::deque<Event>& events) {
  if (parser_) {
    TakeParsed(parser_->Feed(piece), events);
  } else {
    TakeContent(piece, events);
  }
}

void AnswerText::TakeContent(std::string_view text, std::deque<Event>& events) {
  if (text.empty()) return;
  for (LogprobStep& step : undecided_) held_.push_back({std::move(step), content_bytes_});
  undecided_.clear();
  unassigned_ = 0;
  content_bytes_ += text.size();
  Emit(stop_.Feed(text), events);
}

void AnswerText::TakeParsed(const std::vector<OutputEvent>& parsed, std::deque<Event>& events) {
  for (const OutputEvent& event : parsed) {
    switch (event.kind) {
      case OutputEvent::Kind::kContent:
        TakeContent(event.text, events);
        break;
      case OutputEvent::Kind::kThinking:
        thought_tokens_ += std::exchange(unassigned_, 0);
        undecided_.clear();
        events.push_back({.kind = Event::Kind::kThinking, .text = event.text});
        break;
      case OutputEvent::Kind::kToolCall:
        unassigned_ = 0;
        undecided_.clear();
        events.push_back({.kind = Event::Kind::kToolCall,
                          .call = {event.call.name, event.call.arguments.dump()}});
        break;
    }
  }
}

void AnswerText::Emit(std::string text, std::deque<Event>& events) {
  if (text.empty()) return;
  emitted_bytes_ += text.size();
  Event event{.kind = Event::Kind::kText, .text = std::move(text)};
  while (!held_.empty() && held_.front().begin < emitted_bytes_) {
    event.logprobs.push_back(std::move(held_.front().logprobs));
    held_.pop_front();
  }
  events.push_back(std::move(event));
}

}  // namespace rullama
