#include "server/openai/responses_request.h"

#include <fmt/format.h>

#include <array>
#include <string>
#include <utility>

#include "server/field_reader.h"
#include "server/form_fields.h"
#include "server/media_fields.h"
#include "server/message_fields.h"
#include "server/sampling_fields.h"
#include "server/tool_fields.h"

namespace rullama::server {
namespace {

using nlohmann::json;

constexpr std::string_view kLogprobsInclude = "message.output_text.logprobs";
// Members that stand for state, which this server does not keep.
constexpr std::array<std::string_view, 3> kStateMembers = {"previous_response_id", "conversation",
                                                           "prompt"};

// Makes messages of the items of `input`.
class ItemReader {
 public:
  ItemReader(FieldReader& fields, json& messages, std::vector<Medium>& media)
      : fields_(fields), messages_(messages), media_(media) {}

  void Read(const json& item, const std::string& place) {
    if (!item.is_object()) return fields_.Fail("invalid_type", place, "is not an object");
    FieldReader members(item, place + ".");
    const std::string type = members.Text("type").value_or("message");
    if (type == "message") {
      Message(members, place);
    } else if (type == "function_call") {
      FunctionCall(members);
    } else if (type == "function_call_output") {
      FunctionOutput(members, place);
    } else if (type == "reasoning") {
      Reasoning(members);
    } else {
      members.Fail("unsupported_value", "type",
                   "is not one of message, function_call, function_call_output, reasoning");
    }
    fields_.Fail(members.error());
  }

 private:
  // A text, or a list of parts: the joined texts if there is nothing else, else parts for the
  // engine. `media`: pictures and sounds may be among them.
  json ContentOf(FieldReader& members, std::string_view name, const std::string& place,
                 bool media) {
    const json* content = members.Find(name);
    if (content == nullptr) {
      members.Fail("missing_required_parameter", name, "is missing; give a text");
      return "";
    }
    if (content->is_string()) return *content;
    if (!content->is_array()) {
      members.Fail("invalid_type", name, "is neither a text nor a list of parts");
      return "";
    }
    std::string text;
    json parts = json::array();
    bool only_text = true;
    for (size_t i = 0; i < content->size() && !fields_.error(); ++i) {
      const json part = Part((*content)[i], fmt::format("{}.{}[{}]", place, name, i), media);
      if (part["type"] == "text") text += part["text"].get_ref<const std::string&>();
      only_text = only_text && part["type"] == "text";
      parts.push_back(part);
    }
    return only_text ? json(text) : parts;
  }

  json Part(const json& part, const std::string& at, bool media) {
    json out = {{"type", "text"}, {"text", ""}};
    if (!part.is_object()) {
      fields_.Fail("invalid_type", at, "is not an object");
      return out;
    }
    FieldReader inner(part, at + ".");
    const std::string type = inner.Text("type").value_or("");
    if (media && IsMediaPart(type)) return ReadMediaPart(fields_, at, part, media_);
    if (type != "input_text" && type != "output_text" && type != "text") {
      inner.Fail("unsupported_value", "type",
                 "is neither input_text nor output_text; messages of users and results of "
                 "functions may also have input_image and input_audio");
    }
    const auto piece = inner.Text("text");
    if (!piece) inner.Fail("missing_required_parameter", "text", "is missing");
    out["text"] = piece.value_or("");
    fields_.Fail(inner.error());
    return out;
  }

  void Message(FieldReader& members, const std::string& place) {
    const auto role = members.Text("role");
    if (!role) members.Fail("missing_required_parameter", "role", "is missing; give a role");
    if (role && *role != "system" && *role != "developer" && *role != "user" &&
        *role != "assistant") {
      members.Fail("invalid_value", "role", "is not one of system, developer, user, assistant");
    }
    json message = {{"role", role.value_or("")},
                    {"content", ContentOf(members, "content", place, role == "user")}};
    if (role == "assistant") AddThoughts(message);
    messages_.push_back(std::move(message));
  }

  void FunctionCall(FieldReader& members) {
    const auto id = members.Text("call_id");
    const auto name = members.Text("name");
    const auto arguments = members.Text("arguments");
    if (!id) members.Fail("missing_required_parameter", "call_id", "is missing");
    if (!name) members.Fail("missing_required_parameter", "name", "is missing");
    if (messages_.empty() || messages_.back()["role"] != "assistant") {
      messages_.push_back({{"role", "assistant"}, {"content", ""}});
      AddThoughts(messages_.back());
    }
    json& calls = messages_.back()["tool_calls"];
    if (calls.is_null()) calls = json::array();
    calls.push_back(
        {{"id", id.value_or("")},
         {"type", "function"},
         {"function", {{"name", name.value_or("")}, {"arguments", arguments.value_or("{}")}}}});
  }

  void FunctionOutput(FieldReader& members, const std::string& place) {
    const auto id = members.Text("call_id");
    if (!id) members.Fail("missing_required_parameter", "call_id", "is missing");
    messages_.push_back({{"role", "tool"},
                         {"tool_call_id", id.value_or("")},
                         {"content", ContentOf(members, "output", place, true)}});
  }

  // Its text belongs to the next turn of the assistant.
  void Reasoning(FieldReader& members) {
    const json* content = members.Find("content");
    if (content == nullptr || !content->is_array()) return;
    for (const json& part : *content) {
      if (part.is_object() && part.contains("text") && part["text"].is_string()) {
        thoughts_ += part["text"].get<std::string>();
      }
    }
  }
  void AddThoughts(json& message) {
    if (!thoughts_.empty()) message["reasoning_content"] = std::exchange(thoughts_, "");
  }

  FieldReader& fields_;
  json& messages_;
  std::vector<Medium>& media_;
  std::string thoughts_;
};

json ReadInput(FieldReader& fields, std::vector<Medium>& media) {
  json messages = json::array();
  if (const auto instructions = fields.Text("instructions")) {
    messages.push_back({{"role", "system"}, {"content", *instructions}});
  }
  const json* input = fields.Find("input");
  if (input == nullptr) {
    fields.Fail("missing_required_parameter", "input", "is missing; give a text");
  } else if (input->is_string()) {
    messages.push_back({{"role", "user"}, {"content", *input}});
  } else if (!input->is_array()) {
    fields.Fail("invalid_type", "input", "is neither a text nor a list of items");
  } else if (input->empty() || input->size() > kMaxMessages) {
    fields.Fail("invalid_value", "input",
                fmt::format("has {} items, expected 1 to {}", input->size(), kMaxMessages));
  } else {
    ItemReader reader(fields, messages, media);
    for (size_t i = 0; i < input->size() && !fields.error(); ++i) {
      reader.Read((*input)[i], fmt::format("input[{}]", i));
    }
  }
  return messages;
}

void RefuseState(FieldReader& fields) {
  for (const std::string_view name : kStateMembers) {
    if (fields.Find(name) != nullptr) {
      fields.Fail("unsupported_parameter", name,
                  "is given, but nothing is stored here; send the whole conversation");
    }
  }
  if (fields.Boolean("background").value_or(false)) {
    fields.Fail("unsupported_value", "background", "is true, but answers are not stored here");
  }
  if (fields.Text("truncation").value_or("disabled") != "disabled") {
    fields.Fail("unsupported_value", "truncation", "is not \"disabled\"; nothing is left out here");
  }
}

void ReadReasoning(FieldReader& fields, AnswerRequest& out, Request& request) {
  const json* reasoning = fields.Object("reasoning");
  if (reasoning == nullptr) return;
  FieldReader inner(*reasoning, "reasoning.");
  request.thinking = ReadEffort(inner, "effort");
  NameIgnored(inner, out);
  fields.Fail(inner.error());
}

void ReadLogprobs(FieldReader& fields, AnswerRequest& out, Request& request) {
  const auto top = fields.Integer("top_logprobs", 0, kMaxTopLogprobs);
  const json* include = fields.Find("include");
  if (include == nullptr) return;
  if (!include->is_array()) return fields.Fail("invalid_type", "include", "is not a list");
  for (const json& one : *include) {
    if (one == kLogprobsInclude) {
      request.top_logprobs = static_cast<int32_t>(top.value_or(0));
    } else if (one.is_string()) {
      out.ignored.push_back("include." + one.get<std::string>());
    }
  }
}

json TextMember(FieldReader& fields, const BodyContext& context, AnswerRequest& out,
                TextForm& form) {
  RefuseOtherForms(fields, "text.format");
  const json* text = fields.Object("text");
  if (text == nullptr) return {{"format", {{"type", "text"}}}};
  FieldReader inner(*text, "text.");
  inner.Text("verbosity");
  if (const json* found = inner.Find("format")) {
    form = ReadTextFormat(fields, *found, {"text", "format"}, SchemaPlace::kNamed, context);
  }
  form.name = "text.format";
  NameIgnored(inner, out);
  fields.Fail(inner.error());
  return *text;
}

json MemberOr(const json& body, const char* name, json otherwise) {
  const auto found = body.find(name);
  if (found == body.end() || found->is_null()) return otherwise;
  return *found;
}

}  // namespace

ApiResult<ResponsesRequest> ReadResponsesRequest(const json& body, const BodyContext& context) {
  FieldReader fields(body);
  ResponsesRequest out;
  Request& request = out.answer.prompts.emplace_back();
  ReadCommon(fields, context, request);
  ReadStreaming(fields, context, out.answer);
  if (out.answer.include_drafts) out.answer.ignored.push_back("stream_options.include_drafts");
  RefuseState(fields);
  request.messages = ReadInput(fields, request.media).dump();
  request.max_tokens = ReadMaxTokens(fields, "max_output_tokens", context.capacity).value_or(-1);
  ReadReasoning(fields, out.answer, request);
  ReadLogprobs(fields, out.answer, request);
  const ToolFields tools = ReadTools(fields, /*flat=*/true);
  out.answer.place_in_body = FlatToolPlace;
  TextForm form;
  const json text = TextMember(fields, context, out.answer, form);
  ApplyOutput(fields, context, tools, form, request, out.answer);
  if (fields.error()) return tl::unexpected(*fields.error());
  NameIgnored(fields, out.answer);
  out.repeated = {{"instructions", MemberOr(body, "instructions", nullptr)},
                  {"temperature", MemberOr(body, "temperature", nullptr)},
                  {"top_p", MemberOr(body, "top_p", nullptr)},
                  {"tools", MemberOr(body, "tools", json::array())},
                  {"tool_choice", MemberOr(body, "tool_choice", "auto")},
                  {"parallel_tool_calls", tools.parallel},
                  {"text", text},
                  {"max_output_tokens", MemberOr(body, "max_output_tokens", nullptr)},
                  {"metadata", MemberOr(body, "metadata", json::object())},
                  {"reasoning", MemberOr(body, "reasoning", {{"effort", nullptr}})}};
  return out;
}

}  // namespace rullama::server
