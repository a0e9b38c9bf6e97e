#include "engine/answer_text.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace rullama {

AnswerText::AnswerText(const Tokenizer& tokenizer, AnswerTextOptions options)
    : options_(std::move(options)),
      detokenizer_(tokenizer, /*show_control=*/options_.chat),
      parser_({.report_thinking = options_.thinking}),
      stop_(options_.stop) {}

Status AnswerText::Push(int32_t token, std::deque<Event>& events) {
  RL_ASSIGN_OR_RETURN(const std::string_view piece, detokenizer_.Push(token));
  Take(piece, events);
  return OkStatus();
}

void AnswerText::Finish(std::deque<Event>& events) {
  Take(detokenizer_.Flush(), events);
  if (options_.chat) TakeParsed(parser_.Finish(), events);
  Emit(stop_.Finish(), events);
}

void AnswerText::Take(std::string_view piece, std::deque<Event>& events) {
  if (options_.chat) {
    TakeParsed(parser_.Feed(piece), events);
  } else {
    Emit(stop_.Feed(piece), events);
  }
}

void AnswerText::TakeParsed(const std::vector<gemma4::OutputEvent>& parsed,
                            std::deque<Event>& events) {
  for (const gemma4::OutputEvent& event : parsed) {
    switch (event.kind) {
      case gemma4::OutputEvent::Kind::kContent:
        Emit(stop_.Feed(event.text), events);
        break;
      case gemma4::OutputEvent::Kind::kThinking:
        events.push_back({.kind = Event::Kind::kThinking, .text = event.text});
        break;
      case gemma4::OutputEvent::Kind::kToolCall:
        events.push_back({.kind = Event::Kind::kToolCall,
                          .call = {event.call.name, event.call.arguments.dump()}});
        break;
    }
  }
}

void AnswerText::Emit(std::string text, std::deque<Event>& events) {
  if (!text.empty()) events.push_back({.kind = Event::Kind::kText, .text = std::move(text)});
}

}  // namespace rullama
