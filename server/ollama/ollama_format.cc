// The answers of /api/chat and /api/generate.
#include <chrono>
#include <utility>

#include "server/answer_format.h"
#include "server/answer_parts.h"
#include "server/call.h"

namespace rullama::server {
namespace {

using nlohmann::json;

// Arguments of calls are objects here.
json OllamaCall(const ToolCall& call, size_t index) {
  json arguments = json::parse(call.arguments, nullptr, /*allow_exceptions=*/false);
  if (!arguments.is_object()) arguments = json::object();
  return {
      {"id", MakeId("call_")},
      {"function", {{"index", index}, {"name", call.name}, {"arguments", std::move(arguments)}}}};
}

// One object for each line of a stream; there is one choice.
class OllamaFormat final : public AnswerFormat {
 public:
  OllamaFormat(AnswerIdentity identity, OllamaAnswer kind, int64_t truncated_messages)
      : identity_(std::move(identity)), kind_(kind), truncated_messages_(truncated_messages) {}

  std::string Whole(const std::vector<Choice>& choices) override {
    const Completion& answer = choices.front().completion;
    json calls = json::array();
    for (const ToolCall& call : answer.tool_calls) calls.push_back(OllamaCall(call, calls.size()));
    json line = Content(answer.text, answer.thoughts, std::move(calls));
    if (!answer.logprobs.empty()) {
      line["logprobs"] = TokenLogprobs(choices.front().logprobs, identity_);
    }
    line.update(Counts(answer));
    return Dump(line);
  }

  [[nodiscard]] std::string_view stream_type() const override { return "application/x-ndjson"; }
  std::string Begin(int64_t /*choices*/) override { return ""; }
  std::string Part(int64_t /*choice*/, const Event& event) override {
    json line;
    switch (event.kind) {
      case Event::Kind::kText:
        line = Content(event.text, "", json::array());
        break;
      case Event::Kind::kThinking:
        line = Content("", event.text, json::array());
        break;
      case Event::Kind::kToolCall:
        line = Content("", "", json::array({OllamaCall(event.call, calls_++)}));
        break;
      case Event::Kind::kProgress:
      case Event::Kind::kDraft:
        return "";
    }
    line["done"] = false;
    if (!event.logprobs.empty()) line["logprobs"] = TokenLogprobs(event.logprobs, identity_);
    return Dump(line) + "\n";
  }
  std::string End(int64_t /*choice*/, const Choice& /*answer*/) override { return ""; }
  std::string Last(const std::vector<Choice>& choices) override {
    json line = Content("", "", json::array());
    line.update(Counts(choices.front().completion));
    return Dump(line) + "\n";
  }
  std::string Failure(const ApiError& error) override {
    return Dump(ErrorJson(Dialect::kOllama, error)) + "\n";
  }
  // Every line of this format is an object, so there is nothing to send.
  [[nodiscard]] std::string Ping() const override { return ""; }

 private:
  [[nodiscard]] json Content(const std::string& text, const std::string& thoughts,
                             json calls) const {
    json line = {{"model", identity_.model}, {"created_at", TimeTextNow()}};
    json content = json::object();
    if (!thoughts.empty()) content["thinking"] = thoughts;
    if (!calls.empty()) content["tool_calls"] = std::move(calls);
    if (kind_ == OllamaAnswer::kGenerate) {
      line.update(content);
      line["response"] = text;
      return line;
    }
    content["role"] = "assistant";
    content["content"] = text;
    line["message"] = std::move(content);
    return line;
  }
  [[nodiscard]] json Counts(const Completion& answer) const {
    const bool cut =
        answer.reason == StopReason::kMaxTokens || answer.reason == StopReason::kContextFull;
    json counts = {{"done", true},
                   {"done_reason", cut ? "length" : "stop"},
                   {"total_duration", Nanoseconds(SecondsSince(begin_))},
                   {"load_duration", 0},
                   {"prompt_eval_count", answer.prompt_tokens},
                   {"prompt_eval_cached_count", answer.cached_tokens},
                   {"prompt_eval_duration", Nanoseconds(answer.prompt_seconds)},
                   {"eval_count", answer.ids.size()},
                   {"eval_duration", Nanoseconds(answer.generate_seconds)}};
    if (truncated_messages_ > 0) counts["truncated_messages"] = truncated_messages_;
    return counts;
  }

  AnswerIdentity identity_;
  OllamaAnswer kind_;
  int64_t truncated_messages_;
  Clock::time_point begin_ = Clock::now();
  size_t calls_ = 0;
};

}  // namespace

std::unique_ptr<AnswerFormat> MakeOllamaFormat(AnswerIdentity identity, OllamaAnswer kind,
                                               int64_t truncated_messages) {
  return std::make_unique<OllamaFormat>(std::move(identity), kind, truncated_messages);
}

}  // namespace rullama::server
