#include "server/anthropic/messages_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "server/anthropic/anthropic_tools.h"
#include "server/anthropic/conversation.h"
#include "server/field_reader.h"
#include "server/form_fields.h"
#include "server/openai/openai_fields.h"
#include "server/sampling_fields.h"

namespace rullama::server {
namespace {

using nlohmann::json;

// Members that are accepted and need nothing done.
constexpr std::array<std::string_view, 9> kMessagesHarmless = {
    "metadata", "service_tier",  "inference_geo",   "speed",       "diagnostics",
    "betas",    "cache_control", "user_profile_id", "workspace_id"};
constexpr std::array<std::string_view, 5> kMessagesEfforts = {"low", "medium", "high", "xhigh",
                                                              "max"};

void ReadThinkingMode(FieldReader& fields, int64_t max_tokens, MessagesRequest& out,
                      Request& request) {
  request.thinking = false;
  const json* thinking = fields.Object("thinking");
  if (thinking == nullptr) return;
  FieldReader members(*thinking, "thinking.");
  const auto type = members.Text("type");
  if (type != "enabled" && type != "adaptive" && type != "disabled") {
    members.Fail(type ? "invalid_value" : "missing_required_parameter", "type",
                 "is not one of enabled, adaptive, disabled");
  }
  request.thinking = type != "disabled";
  if (type == "enabled") {
    const auto budget = members.Integer("budget_tokens", 1, max_tokens - 1);
    if (!budget) {
      members.Fail("missing_required_parameter", "budget_tokens",
                   "is missing; give the most tokens of thoughts, fewer than 'max_tokens'");
    }
    request.max_thought_tokens = budget.value_or(-1);
  }
  const auto display = members.Text("display").value_or("summarized");
  if (display != "summarized" && display != "omitted") {
    members.Fail("invalid_value", "display", "is not one of summarized, omitted");
  }
  out.omits_thoughts = display == "omitted";
  fields.Fail(members.error());
}

// output_config.format, or output_format.
TextForm ReadOutputFormat(FieldReader& fields, const BodyContext& context, AnswerRequest& out) {
  constexpr std::string_view kFormat = "output_config.format";
  RefuseOtherForms(fields, kFormat);
  TextForm form;
  form.name = kFormat;
  if (const json* config = fields.Object("output_config")) {
    FieldReader members(*config, "output_config.");
    if (const auto effort = members.Text("effort");
        effort && std::ranges::find(kMessagesEfforts, *effort) == kMessagesEfforts.end()) {
      members.Fail("invalid_value", "effort",
                   fmt::format("is not one of {}", fmt::join(kMessagesEfforts, ", ")));
    }
    if (const json* format = members.Find("format")) {
      form = ReadTextFormat(fields, *format, {"output_config", "format"}, SchemaPlace::kUnnamed,
                            context);
      form.name = kFormat;
    }
    NameIgnored(members, out);
    fields.Fail(members.error());
  }
  const json* format = fields.Find("output_format");
  if (format == nullptr) return form;
  if (form.kind != TextForm::Kind::kText) {
    fields.Fail("invalid_value", "output_format",
                fmt::format("is given together with '{}'; an answer has one form", kFormat));
  }
  form = ReadTextFormat(fields, *format, {"output_format"}, SchemaPlace::kUnnamed, context);
  form.name = "output_format";
  return form;
}

void RefuseWhatIsNotHere(FieldReader& fields) {
  if (fields.Find("container") != nullptr) {
    fields.Fail("unsupported_value", "container", "is given, but there are none; leave it out");
  }
  const json* servers = fields.Find("mcp_servers");
  if (servers != nullptr && *servers != json::array()) {
    fields.Fail("unsupported_value", "mcp_servers",
                "is not an empty list, but no servers are asked for requests; leave it out");
  }
}

// What may not stand together with an answer that continues the last turn.
void CheckContinued(FieldReader& fields, const Request& request) {
  if (!request.continue_last) return;
  const auto refuse = [&fields](std::string_view with) {
    fields.Fail(
        "invalid_value", "messages",
        fmt::format("ends with a turn of the assistant, which cannot be continued {}", with));
  };
  if (request.thinking.value_or(false)) refuse("with 'thinking'");
  if (request.tool_choice == ToolChoice::kRequired) refuse("by a call, as 'tool_choice' asks for");
}

ApiResult<MessagesRequest> ReadBody(const json& body, const BodyContext& context, bool counts) {
  FieldReader fields(body);
  MessagesRequest out;
  Request& request = out.answer.prompts.emplace_back();
  if (!fields.Text("model")) {
    fields.Fail("missing_required_parameter", "model", "is missing; name the model");
  }
  const auto max_tokens = fields.Integer("max_tokens", 1);
  if (!max_tokens && !counts) {
    fields.Fail("missing_required_parameter", "max_tokens", "is missing; give the most tokens");
  }
  request.max_tokens = max_tokens.value_or(-1);
  Conversation conversation = ReadConversation(fields);
  request.messages = conversation.messages.dump();
  request.media = std::move(conversation.media);
  request.continue_last = conversation.continues_last;
  if (fields.Integer("top_k").value_or(0) < 0) {
    fields.Fail("invalid_value", "top_k", "is negative, expected 0 or more");
  }
  ReadSettings(fields, context, request);
  ReadStopSequences(fields, request.stop);
  out.answer.stream = fields.Boolean("stream").value_or(false);
  // A prompt that is counted need not say how long its answer may be.
  const int64_t most = counts ? std::numeric_limits<int64_t>::max() : max_tokens.value_or(0);
  ReadThinkingMode(fields, most, out, request);
  AnthropicTools tools = ReadAnthropicTools(fields, context);
  ApplyOutput(fields, context, tools.tools, ReadOutputFormat(fields, context, out.answer), request,
              out.answer);
  CheckContinued(fields, request);
  RefuseWhatIsNotHere(fields);
  for (const std::string_view name : kMessagesHarmless) fields.Find(name);
  if (fields.Find("context_management") != nullptr) {
    fields.Ignore("context_management");
    out.edits_context = true;
  }
  if (fields.error()) return tl::unexpected(*fields.error());
  NameIgnored(fields, out.answer);
  out.answer.place_in_body = [indices = std::move(tools.indices)](const std::string& place) {
    return AnthropicPlace(indices, place);
  };
  return out;
}

}  // namespace

ApiResult<MessagesRequest> ReadMessagesRequest(const json& body, const BodyContext& context) {
  return ReadBody(body, context, /*counts=*/false);
}

ApiResult<MessagesRequest> ReadCountedRequest(const json& body, const BodyContext& context) {
  return ReadBody(body, context, /*counts=*/true);
}

}  // namespace rullama::server
