// The answers of /v1/responses.
#include <utility>

#include "server/answer_format.h"
#include "server/answer_parts.h"

namespace rullama::server {
namespace {

using nlohmann::json;

// An item of the output while it is written.
struct OpenItem {
  enum class Kind { kNone, kReasoning, kMessage };
  Kind kind = Kind::kNone;
  std::string id = {};
  std::string text = {};
  json logprobs = json::array();
};

class ResponsesFormat final : public AnswerFormat {
 public:
  ResponsesFormat(AnswerIdentity identity, json repeated)
      : identity_(std::move(identity)), repeated_(std::move(repeated)), id_(MakeId("resp_")) {}

  // The events are made as for a stream, and dropped: their output is that of the answer.
  std::string Whole(const std::vector<Choice>& choices) override {
    const Choice& choice = choices.front();
    const Completion& answer = choice.completion;
    if (!answer.thoughts.empty()) {
      Part(0, {.kind = Event::Kind::kThinking, .text = answer.thoughts});
    }
    if (!answer.text.empty()) {
      Part(0, {.kind = Event::Kind::kText, .text = answer.text, .logprobs = choice.logprobs});
    }
    for (const ToolCall& call : answer.tool_calls) {
      Part(0, {.kind = Event::Kind::kToolCall, .call = call});
    }
    CloseAll(answer);
    return Dump(Final(choice));
  }

  std::string Begin(int64_t /*choices*/) override {
    std::string out = Emit("response.created", {{"response", Response("in_progress")}});
    out += Emit("response.in_progress", {{"response", Response("in_progress")}});
    return out;
  }

  std::string Part(int64_t /*choice*/, const Event& event) override {
    // Events are numbered in the order in which they are made.
    std::string out;
    switch (event.kind) {
      case Event::Kind::kText:
        out = Open(OpenItem::Kind::kMessage);
        out += TextDelta(event);
        break;
      case Event::Kind::kThinking:
        out = Open(OpenItem::Kind::kReasoning);
        open_.text += event.text;
        out += EmitItem("response.reasoning_text.delta",
                        {{"content_index", 0}, {"delta", event.text}});
        break;
      case Event::Kind::kToolCall:
        out = Close("completed");
        out += Call(event.call);
        break;
      case Event::Kind::kProgress:
      case Event::Kind::kDraft:
        break;
    }
    return out;
  }

  std::string End(int64_t /*choice*/, const Choice& answer) override {
    return CloseAll(answer.completion);
  }

  std::string Last(const std::vector<Choice>& choices) override {
    const Choice& choice = choices.front();
    const bool cut = IsCut(choice.completion);
    return Emit(cut ? "response.incomplete" : "response.completed", {{"response", Final(choice)}});
  }

  std::string Failure(const ApiError& error) override {
    std::string out =
        Emit("error", {{"code", error.code}, {"message", error.message}, {"param", nullptr}});
    json response = Response("failed");
    response["error"] = {{"code", error.code}, {"message", error.message}};
    return out + Emit("response.failed", {{"response", std::move(response)}});
  }

 private:
  static bool IsCut(const Completion& answer) {
    return answer.reason == StopReason::kMaxTokens || answer.reason == StopReason::kContextFull;
  }

  std::string Emit(const std::string& type, json data) {
    data["type"] = type;
    data["sequence_number"] = events_++;
    return "event: " + type + "\n" + DataEvent(data);
  }
  // An event of the item that is open.
  std::string EmitItem(const std::string& type, json data) {
    data["item_id"] = open_.id;
    data["output_index"] = output_.size();
    return Emit(type, std::move(data));
  }

  json Response(const std::string& status) const {
    json response = repeated_;
    response["id"] = id_;
    response["object"] = "response";
    response["created_at"] = identity_.created;
    response["completed_at"] = nullptr;
    response["status"] = status;
    response["error"] = nullptr;
    response["incomplete_details"] = nullptr;
    response["model"] = identity_.model;
    response["output"] = output_;
    response["truncation"] = "disabled";
    response["store"] = false;
    response["previous_response_id"] = nullptr;
    response["usage"] = nullptr;
    return response;
  }

  json Final(const Choice& choice) const {
    const Completion& answer = choice.completion;
    const bool cut = IsCut(answer);
    json response = Response(cut ? "incomplete" : "completed");
    response["completed_at"] = SecondsNow();
    if (cut) response["incomplete_details"] = {{"reason", "max_output_tokens"}};
    const auto drawn = std::ssize(answer.ids);
    response["usage"] = {{"input_tokens", answer.prompt_tokens},
                         {"input_tokens_details", {{"cached_tokens", answer.cached_tokens}}},
                         {"output_tokens", drawn},
                         {"output_tokens_details", {{"reasoning_tokens", answer.thought_tokens}}},
                         {"total_tokens", answer.prompt_tokens + drawn}};
    return response;
  }

  // The open item as it stands.
  json ItemNow(const std::string& status) const {
    if (open_.kind == OpenItem::Kind::kReasoning) {
      json content = json::array();
      if (!open_.text.empty())
        content.push_back({{"type", "reasoning_text"}, {"text", open_.text}});
      return {{"type", "reasoning"},
              {"id", open_.id},
              {"summary", json::array()},
              {"content", std::move(content)},
              {"status", status}};
    }
    json content = json::array();
    if (status != "in_progress") content.push_back(TextPart());
    return {{"type", "message"},
            {"id", open_.id},
            {"role", "assistant"},
            {"status", status},
            {"content", std::move(content)}};
  }
  json TextPart() const {
    return {{"type", "output_text"},
            {"text", open_.text},
            {"annotations", json::array()},
            {"logprobs", open_.logprobs}};
  }

  // Closes the open item, unless it is of this kind, and opens an item of the kind.
  std::string Open(OpenItem::Kind kind) {
    if (open_.kind == kind) return "";
    std::string out = Close("completed");
    open_ = {.kind = kind, .id = MakeId(kind == OpenItem::Kind::kMessage ? "msg_" : "rs_")};
    out += Emit("response.output_item.added",
                {{"output_index", output_.size()}, {"item", ItemNow("in_progress")}});
    if (kind == OpenItem::Kind::kMessage) {
      out += EmitItem("response.content_part.added", {{"content_index", 0}, {"part", TextPart()}});
    }
    return out;
  }

  std::string Close(const std::string& status) {
    if (open_.kind == OpenItem::Kind::kNone) return "";
    std::string out;
    if (open_.kind == OpenItem::Kind::kReasoning) {
      out = EmitItem("response.reasoning_text.done", {{"content_index", 0}, {"text", open_.text}});
    } else {
      out = EmitItem("response.output_text.done",
                     {{"content_index", 0}, {"text", open_.text}, {"logprobs", open_.logprobs}});
      out += EmitItem("response.content_part.done", {{"content_index", 0}, {"part", TextPart()}});
    }
    json item = ItemNow(status);
    out += Emit("response.output_item.done", {{"output_index", output_.size()}, {"item", item}});
    output_.push_back(std::move(item));
    open_ = {};
    return out;
  }

  // An answer without anything is an empty message.
  std::string CloseAll(const Completion& answer) {
    std::string out;
    if (output_.empty() && open_.kind == OpenItem::Kind::kNone) {
      out = Open(OpenItem::Kind::kMessage);
    }
    return out + Close(IsCut(answer) ? "incomplete" : "completed");
  }

  std::string TextDelta(const Event& event) {
    const json logprobs = TokenLogprobs(event.logprobs, identity_);
    open_.text += event.text;
    for (const json& one : logprobs) open_.logprobs.push_back(one);
    return EmitItem("response.output_text.delta",
                    {{"content_index", 0}, {"delta", event.text}, {"logprobs", logprobs}});
  }

  std::string Call(const ToolCall& call) {
    json item = {{"type", "function_call"}, {"id", MakeId("fc_")}, {"call_id", MakeId("call_")},
                 {"name", call.name},       {"arguments", ""},     {"status", "in_progress"}};
    const json place = {{"item_id", item["id"]}, {"output_index", output_.size()}};
    std::string out =
        Emit("response.output_item.added", {{"output_index", output_.size()}, {"item", item}});
    json delta = place;
    delta["delta"] = call.arguments;
    out += Emit("response.function_call_arguments.delta", std::move(delta));
    json done = place;
    done["name"] = call.name;
    done["arguments"] = call.arguments;
    out += Emit("response.function_call_arguments.done", std::move(done));
    item["arguments"] = call.arguments;
    item["status"] = "completed";
    out += Emit("response.output_item.done", {{"output_index", output_.size()}, {"item", item}});
    output_.push_back(std::move(item));
    return out;
  }

  AnswerIdentity identity_;
  json repeated_;
  std::string id_;
  int64_t events_ = 0;
  json output_ = json::array();  // items that are over
  OpenItem open_;
};

}  // namespace

std::unique_ptr<AnswerFormat> MakeResponsesFormat(AnswerIdentity identity, json repeated) {
  return std::make_unique<ResponsesFormat>(std::move(identity), std::move(repeated));
}

}  // namespace rullama::server
