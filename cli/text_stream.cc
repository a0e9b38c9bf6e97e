#include "cli/text_stream.h"

namespace rullama::cli {

TextStream::TextStream(const ModelSession& engine, const AnswerOptions& options, Answer& answer)
    : options_(options),
      answer_(answer),
      detokenizer_(engine.tokenizer(), /*show_control=*/options.chat),
      stop_(options.stop) {
  if (!options.chat) return;
  parser_ = engine.model().model->MakeOutputParser({.report_thinking = options.thinking});
}

Status TextStream::Push(int32_t token) {
  RL_ASSIGN_OR_RETURN(const std::string_view piece, detokenizer_.Push(token));
  return Take(piece);
}

Status TextStream::Finish() {
  RL_RETURN_IF_ERROR(Take(detokenizer_.Flush()));
  if (parser_) RL_RETURN_IF_ERROR(TakeEvents(parser_->Finish()));
  return Emit(stop_.Finish());
}

Status TextStream::Take(std::string_view piece) {
  if (!parser_) return Emit(stop_.Feed(piece));
  return TakeEvents(parser_->Feed(piece));
}

Status TextStream::TakeEvents(const std::vector<OutputEvent>& events) {
  for (const OutputEvent& event : events) {
    switch (event.kind) {
      case OutputEvent::Kind::kContent:
        RL_RETURN_IF_ERROR(Emit(stop_.Feed(event.text)));
        break;
      case OutputEvent::Kind::kThinking:
        answer_.thoughts += event.text;
        if (options_.on_thought) RL_RETURN_IF_ERROR(options_.on_thought(event.text));
        break;
      case OutputEvent::Kind::kToolCall:
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
