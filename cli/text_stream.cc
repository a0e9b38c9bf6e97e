#include "cli/text_stream.h"

#include <optional>
#include <utility>

namespace rullama::cli {
namespace {

AnswerTextOptions TextOptions(const ModelSession& engine, const AnswerOptions& options) {
  AnswerTextOptions text{.parser = {}, .stop = options.stop};
  if (options.chat) {
    text.parser = engine.model().model->MakeOutputParser({.report_thinking = options.thinking});
  }
  return text;
}

}  // namespace

TextStream::TextStream(const ModelSession& engine, const AnswerOptions& options, Answer& answer)
    : options_(options), answer_(answer), text_(engine.tokenizer(), TextOptions(engine, options)) {}

Status TextStream::Push(int32_t token) {
  answer_.ids.push_back(token);
  RL_RETURN_IF_ERROR(text_.Push(token, /*logprobs=*/std::nullopt, events_));
  return DeliverAll();
}

Status TextStream::Finish() {
  text_.Finish(events_);
  return DeliverAll();
}

Status TextStream::DeliverAll() {
  for (const Event& event : std::exchange(events_, {})) RL_RETURN_IF_ERROR(Deliver(event));
  return OkStatus();
}

Status TextStream::Deliver(const Event& event) {
  switch (event.kind) {
    case Event::Kind::kText:
      answer_.text += event.text;
      return options_.on_text ? options_.on_text(event.text) : OkStatus();
    case Event::Kind::kThinking:
      answer_.thoughts += event.text;
      return options_.on_thought ? options_.on_thought(event.text) : OkStatus();
    case Event::Kind::kToolCall:
      answer_.tool_calls.push_back(
          {{"name", event.call.name}, {"arguments", nlohmann::json::parse(event.call.arguments)}});
      return OkStatus();
    case Event::Kind::kProgress:
    case Event::Kind::kDraft:
      break;  // AnswerText makes none of these
  }
  return OkStatus();
}

}  // namespace rullama::cli
