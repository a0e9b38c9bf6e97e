#include "server/answer_shape.h"

#include <fmt/format.h>

#include <chrono>
#include <random>
#include <utility>

namespace rullama::server {
namespace {

using nlohmann::json;

std::string_view FinishReason(const Completion& answer) {
  if (answer.reason == StopReason::kMaxTokens || answer.reason == StopReason::kContextFull) {
    return "length";
  }
  return answer.tool_calls.empty() ? "stop" : "tool_calls";
}

json CallOf(const ToolCall& call) {
  return {{"id", MakeId("call_")},
          {"type", "function"},
          {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
}

json UsageOf(const Completion& answer, int64_t thought_tokens) {
  const auto drawn = static_cast<int64_t>(answer.ids.size());
  return {{"prompt_tokens", answer.prompt_tokens},
          {"completion_tokens", drawn},
          {"total_tokens", answer.prompt_tokens + drawn},
          {"prompt_tokens_details", {{"cached_tokens", answer.cached_tokens}}},
          {"completion_tokens_details", {{"reasoning_tokens", thought_tokens}}}};
}

double PerSecond(int64_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

// The names are llama.cpp's.
json TimingsOf(const Completion& answer) {
  const int64_t read = answer.prompt_tokens - answer.cached_tokens;
  const auto drawn = static_cast<int64_t>(answer.ids.size());
  return {{"cache_n", answer.cached_tokens},
          {"prompt_n", read},
          {"prompt_ms", answer.prompt_seconds * 1e3},
          {"prompt_per_second", PerSecond(read, answer.prompt_seconds)},
          {"predicted_n", drawn},
          {"predicted_ms", answer.generate_seconds * 1e3},
          {"predicted_per_second", PerSecond(drawn, answer.generate_seconds)},
          {"queue_ms", answer.queue_seconds * 1e3},
          {"seed", answer.seed}};
}

json MessageOf(const Completion& answer) {
  json message = {{"role", "assistant"}, {"content", answer.text}, {"refusal", nullptr}};
  if (!answer.thoughts.empty()) message["reasoning_content"] = answer.thoughts;
  if (answer.tool_calls.empty()) return message;
  if (answer.text.empty()) message["content"] = nullptr;
  message["tool_calls"] = json::array();
  for (const ToolCall& call : answer.tool_calls) message["tool_calls"].push_back(CallOf(call));
  return message;
}

std::string EventText(const json& chunk) { return "data: " + Dump(chunk) + "\n\n"; }

}  // namespace

std::string Dump(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string MakeId(std::string_view prefix) {
  constexpr std::string_view kLetters =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  thread_local std::mt19937_64 random{std::random_device{}()};
  std::uniform_int_distribution<size_t> letter(0, kLetters.size() - 1);
  std::string id(prefix);
  for (int i = 0; i < 24; ++i) id.push_back(kLetters[letter(random)]);
  return id;
}

AnswerShape::AnswerShape(bool chat, std::string model, std::string fingerprint)
    : chat_(chat),
      id_(MakeId(chat ? "chatcmpl-" : "cmpl-")),
      created_(std::chrono::duration_cast<std::chrono::seconds>(
                   std::chrono::system_clock::now().time_since_epoch())
                   .count()),
      model_(std::move(model)),
      fingerprint_(std::move(fingerprint)) {}

json AnswerShape::Base(bool chunk) const {
  const char* object = "text_completion";
  if (chat_) object = chunk ? "chat.completion.chunk" : "chat.completion";
  return {{"id", id_},
          {"object", object},
          {"created", created_},
          {"model", model_},
          {"system_fingerprint", fingerprint_}};
}

std::string AnswerShape::Whole(const Completion& answer, int64_t thought_tokens) const {
  json choice = {{"index", 0}, {"logprobs", nullptr}, {"finish_reason", FinishReason(answer)}};
  if (chat_) {
    choice["message"] = MessageOf(answer);
  } else {
    choice["text"] = answer.text;
  }
  json body = Base(false);
  body["choices"] = json::array({std::move(choice)});
  body["usage"] = UsageOf(answer, thought_tokens);
  body["timings"] = TimingsOf(answer);
  return Dump(body);
}

json AnswerShape::Chunk(json delta, json reason, bool usage) const {
  json choice = {{"index", 0}, {"logprobs", nullptr}, {"finish_reason", std::move(reason)}};
  choice[chat_ ? "delta" : "text"] = std::move(delta);
  json chunk = Base(true);
  chunk["choices"] = json::array({std::move(choice)});
  if (usage) chunk["usage"] = nullptr;
  return chunk;
}

std::string AnswerShape::First(bool usage) const {
  if (!chat_) return "";
  return EventText(Chunk({{"role", "assistant"}, {"content", ""}}, nullptr, usage));
}

std::string AnswerShape::Part(const Event& event, int64_t call_index, bool usage) const {
  switch (event.kind) {
    case Event::Kind::kText:
      if (!chat_) return EventText(Chunk(event.text, nullptr, usage));
      return EventText(Chunk({{"content", event.text}}, nullptr, usage));
    case Event::Kind::kThinking:
      return EventText(Chunk({{"reasoning_content", event.text}}, nullptr, usage));
    case Event::Kind::kToolCall: {
      json call = CallOf(event.call);
      call["index"] = call_index;
      return EventText(Chunk({{"tool_calls", json::array({std::move(call)})}}, nullptr, usage));
    }
    case Event::Kind::kProgress:
    case Event::Kind::kDraft:
      break;
  }
  return "";
}

std::string AnswerShape::Last(const Completion& answer, int64_t thought_tokens, bool usage) const {
  json chunk = Chunk(chat_ ? json::object() : json(""), std::string(FinishReason(answer)), usage);
  if (!usage) {
    chunk["timings"] = TimingsOf(answer);
    return EventText(chunk) + "data: [DONE]\n\n";
  }
  json counts = Base(true);
  counts["choices"] = json::array();
  counts["usage"] = UsageOf(answer, thought_tokens);
  counts["timings"] = TimingsOf(answer);
  return EventText(chunk) + EventText(counts) + "data: [DONE]\n\n";
}

}  // namespace rullama::server
