// The answers of /v1/messages.
#include <utility>

#include "core/base/clock.h"
#include "server/answer_format.h"
#include "server/answer_parts.h"

namespace rullama::server {
namespace {

using nlohmann::json;

// Clients give thoughts back with their signature, which nobody reads here.
constexpr std::string_view kSignature = "cnVsbGFtYQ==";
// A client hears something at the latest this long after the answer has begun.
constexpr double kFirstPingSeconds = 5;

std::string_view StopReasonOf(const Completion& answer) {
  if (!answer.tool_calls.empty()) return "tool_use";
  switch (answer.reason) {
    case StopReason::kStopped:
      return "stop_sequence";
    case StopReason::kMaxTokens:
      return "max_tokens";
    case StopReason::kContextFull:
      return "model_context_window_exceeded";
    default:
      return "end_turn";
  }
}

json StopSequenceOf(const Completion& answer) {
  const bool stopped = StopReasonOf(answer) == "stop_sequence";
  return stopped ? json(answer.stop_text) : json(nullptr);
}

json InputUsage(int64_t prompt, int64_t cached) {
  return {{"input_tokens", prompt - cached},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", cached}};
}

json UsageOfMessage(const Completion& answer) {
  json usage = InputUsage(answer.prompt_tokens, answer.cached_tokens);
  usage["output_tokens"] = answer.ids.size();
  usage["output_tokens_details"] = {{"thinking_tokens", answer.thought_tokens}};
  return usage;
}

class MessagesFormat final : public AnswerFormat {
 public:
  MessagesFormat(AnswerIdentity identity, MessagesOptions options)
      : identity_(std::move(identity)), options_(options), id_(MakeId("msg_")) {}

  // The events are made as for a stream, and dropped: their blocks are those of the answer.
  void Watch(int64_t choice, const Event& event) override { Part(choice, event); }

  std::string Whole(const std::vector<Choice>& choices) override {
    const Completion& answer = choices.front().completion;
    Close();
    json message = Message();
    message["content"] = blocks_;
    message["stop_reason"] = StopReasonOf(answer);
    message["stop_sequence"] = StopSequenceOf(answer);
    message["usage"] = UsageOfMessage(answer);
    message["timings"] = TimingsOf(choices);
    if (options_.edits_context) message["context_management"] = kNoEdits;
    return Dump(message);
  }

  // The message begins with the counts of its prompt, which come with the first part.
  std::string Begin(int64_t /*choices*/) override { return ""; }

  std::string Part(int64_t /*choice*/, const Event& event) override {
    switch (event.kind) {
      case Event::Kind::kProgress:
        return Start(event.total, event.reused) + PingIfLate();
      case Event::Kind::kText:
        return Delta("text", "text_delta", "text", event.text);
      case Event::Kind::kThinking:
        return Delta("thinking", "thinking_delta", "thinking",
                     options_.omits_thoughts ? "" : event.text);
      case Event::Kind::kToolCall:
        return Call(event.call);
      case Event::Kind::kDraft:
        break;
    }
    return "";
  }

  std::string End(int64_t /*choice*/, const Choice& answer) override {
    // An answer may end without a part.
    std::string out = Start(answer.completion.prompt_tokens, answer.completion.cached_tokens);
    return out + Close();
  }

  std::string Last(const std::vector<Choice>& choices) override {
    const Completion& answer = choices.front().completion;
    json end = {
        {"delta",
         {{"stop_reason", StopReasonOf(answer)}, {"stop_sequence", StopSequenceOf(answer)}}},
        {"usage", UsageOfMessage(answer)}};
    if (options_.edits_context) end["context_management"] = kNoEdits;
    return Emit("message_delta", std::move(end)) + Emit("message_stop", json::object());
  }

  std::string Failure(const ApiError& error) override {
    return "event: error\n" + DataEvent(ErrorJson(Dialect::kAnthropic, error));
  }

  [[nodiscard]] std::string Ping() const override { return Emit("ping", json::object()); }

 private:
  static inline const json kNoEdits = {{"applied_edits", json::array()}};

  static std::string Emit(const std::string& type, json data) {
    data["type"] = type;
    return "event: " + type + "\n" + DataEvent(data);
  }
  // An event of the last block.
  [[nodiscard]] std::string EmitBlock(const std::string& type, json data) const {
    data["index"] = blocks_.size() - 1;
    return Emit(type, std::move(data));
  }

  [[nodiscard]] json Message() const {
    return {{"id", id_},
            {"type", "message"},
            {"role", "assistant"},
            {"model", identity_.model},
            {"content", json::array()},
            {"stop_reason", nullptr},
            {"stop_sequence", nullptr}};
  }

  std::string Start(int64_t prompt, int64_t cached) {
    if (started_) return "";
    started_ = true;
    json message = Message();
    message["usage"] = InputUsage(prompt, cached);
    message["usage"]["output_tokens"] = 0;
    return Emit("message_start", {{"message", std::move(message)}});
  }

  std::string PingIfLate() {
    if (pinged_ || SecondsSince(begin_) < kFirstPingSeconds) return "";
    pinged_ = true;
    return Ping();
  }

  // Opens a block as `block`, which has all of its members.
  std::string Open(json block) {
    std::string out = Close();
    open_ = true;
    blocks_.push_back(block);
    out += EmitBlock("content_block_start", {{"content_block", std::move(block)}});
    if (!std::exchange(pinged_, true)) out += Ping();
    return out;
  }

  std::string Close() {
    if (!std::exchange(open_, false)) return "";
    json& block = blocks_.back();
    std::string out;
    if (block["type"] == "thinking") {
      block["signature"] = kSignature;
      out = EmitBlock("content_block_delta",
                      {{"delta", {{"type", "signature_delta"}, {"signature", kSignature}}}});
    }
    return out + EmitBlock("content_block_stop", json::object());
  }

  // Adds a text to the block of this type, which is opened if the last one is of another.
  std::string Delta(const char* type, const char* delta, const char* member,
                    const std::string& text) {
    std::string out;
    if (!open_ || blocks_.back()["type"] != type) {
      json block = {{"type", type}, {member, ""}};
      if (block["type"] == "thinking") block["signature"] = "";
      out = Open(std::move(block));
    }
    if (text.empty()) return out;
    blocks_.back()[member].get_ref<std::string&>() += text;
    return out + EmitBlock("content_block_delta", {{"delta", {{"type", delta}, {member, text}}}});
  }

  std::string Call(const ToolCall& call) {
    std::string out = Open({{"type", "tool_use"},
                            {"id", MakeId("toolu_")},
                            {"name", call.name},
                            {"input", json::object()}});
    out += EmitBlock("content_block_delta",
                     {{"delta", {{"type", "input_json_delta"}, {"partial_json", call.arguments}}}});
    blocks_.back()["input"] = json::parse(call.arguments);
    return out + Close();
  }

  AnswerIdentity identity_;
  MessagesOptions options_;
  std::string id_;
  Clock::time_point begin_ = Clock::now();
  bool started_ = false;
  bool pinged_ = false;
  bool open_ = false;  // the last block
  json blocks_ = json::array();
};

}  // namespace

std::unique_ptr<AnswerFormat> MakeMessagesFormat(AnswerIdentity identity, MessagesOptions options) {
  return std::make_unique<MessagesFormat>(std::move(identity), options);
}

}  // namespace rullama::server
