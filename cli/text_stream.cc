#include "cli/text_stream.h"

namespace rullama::cli {

TextStream::TextStream(const Tokenizer& tokenizer, const AnswerOptions& options, Answer& answer)
    : options_(options),
      answer_(answer),
      detokenizer_(tokenizer, /*show_control=*/options.chat),
      parser_({.report_thinking = options.thinking}),
      stop_(options.stop) {}

Status TextStream::Push(int32_t token) {
  RL_ASSIGN_OR_RETURN(const std::string_view piece, detokenizer_.Push(token));
  return Take(piece);
}

Status TextStream::Finish() {
  RL_RETURN_IF_ERROR(Take(detokenizer_.Flush()));
  if (options_.chat) RL_RETURN_IF_ERROR(TakeEvents(parser_.Finish()));
  return Emit(stop_.Finish());
}

Status TextStream::Take(std::string_view piece) {
  if (!options_.chat) return Emit(stop_.Feed(piece));
  return TakeEvents(parser_.Feed(piece));
}

Status TextStream::TakeEvents(const std::vector<gemma4::OutputEvent>& events) {
  for (const gemma4::OutputEvent& event : events) {
    switch (event.kind) {
      case gemma4::OutputEvent::Kind::kContent:
        RL_RETURN_IF_ERROR(Emit(stop_.Feed(event.text)));
        break;
      case gemma4::OutputEvent::Kind::kThinking:
        answer_.thoughts += event.text;
        if (options_.on_thought) RL_RETURN_IF_ERROR(options_.on_thought(event.text));
        break;
      case gemma4::OutputEvent::Kind::kToolCall:
        answer_.tool_calls.push_back(
            {{"name", event.call.name}, {"arguments", event.call.arguments}});
        break;
    }
  }
  return OkStatus();
}

Status TextStream::Emit(const std::string& text) {
  if (text.empty()) return OkStatus();
  answer_.text += text;
  return options_.on_text ? options_.on_text(text) : OkStatus();
}

}  // namespace rullama::cli
