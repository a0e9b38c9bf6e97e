#include "server/openai/chat_request.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/field_reader.h"
#include "server/form_fields.h"
#include "server/message_fields.h"
#include "server/sampling_fields.h"

namespace rullama::server {
namespace {

using nlohmann::json;

constexpr size_t kMaxPrompts = 256;
constexpr int64_t kMaxPromptAnswers = 512;  // to all of them
constexpr int64_t kDefaultTextTokens = 16;  // of /v1/completions, as OpenAI has it

// Gives the texts of users the languages that they are to be translated from and into, unless they
// have their own: as members of a part, where the template of a model that translates looks.
void AddLanguages(FieldReader& arguments, json& messages) {
  const auto source = arguments.Text("source_lang_code");
  const auto target = arguments.Text("target_lang_code");
  if ((!source && !target) || !messages.is_array()) return;
  for (json& message : messages) {
    if (!message.is_object() || message.value("role", json()) != "user") continue;
    json& content = message["content"];
    if (content.is_string()) content = json::array({{{"type", "text"}, {"text", content}}});
    for (json& part : content) {
      if (!part.is_object() || part.contains("source_lang_code")) continue;
      if (source) part["source_lang_code"] = *source;
      if (target) part["target_lang_code"] = *target;
    }
  }
}

// Whether the model is to think, where the two ways to say it must agree, and languages.
void ReadTemplateFields(FieldReader& fields, AnswerRequest& out, Request& request, json& messages) {
  request.thinking = ReadEffort(fields, "reasoning_effort");
  const json* arguments = fields.Object("chat_template_kwargs");
  if (arguments == nullptr) return;
  FieldReader inner(*arguments, "chat_template_kwargs.");
  const auto enabled = inner.Boolean("enable_thinking");
  if (enabled && request.thinking && *enabled != *request.thinking) {
    inner.Fail("invalid_value", "enable_thinking", "contradicts 'reasoning_effort'; give one");
  }
  if (enabled) request.thinking = enabled;
  AddLanguages(inner, messages);
  NameIgnored(inner, out);
  fields.Fail(inner.error());
}

void ReadChatLogprobs(FieldReader& fields, Request& request) {
  const bool wanted = fields.Boolean("logprobs").value_or(false);
  const auto top = fields.Integer("top_logprobs", 0, kMaxTopLogprobs);
  if (top && !wanted) {
    fields.Fail("invalid_value", "top_logprobs", "is given without 'logprobs': true");
  }
  if (wanted) request.top_logprobs = static_cast<int32_t>(top.value_or(0));
}

// One prompt of a completion: a text or ids. Returns false for anything else.
bool ReadPrompt(FieldReader& fields, const json& prompt, Request& request) {
  if (prompt.is_string()) {
    request.prompt = prompt.get<std::string>();
    return true;
  }
  if (!prompt.is_array()) return false;
  request.ids = ReadIds(fields, "prompt", prompt);
  return true;
}

void ReadPrompts(FieldReader& fields, const Request& request, AnswerRequest& out) {
  const json* prompt = fields.Find("prompt");
  if (prompt == nullptr) {
    return fields.Fail("missing_required_parameter", "prompt", "is missing; give a text");
  }
  const bool several = prompt->is_array() && !prompt->empty() &&
                       (prompt->front().is_string() || prompt->front().is_array());
  const json list = several ? *prompt : json::array({*prompt});
  if (list.size() > kMaxPrompts) {
    return fields.Fail(
        "invalid_value", "prompt",
        fmt::format("has {} prompts, expected at most {}", list.size(), kMaxPrompts));
  }
  if (out.n * std::ssize(list) > kMaxPromptAnswers) {
    return fields.Fail("invalid_value", "prompt",
                       fmt::format("has {} prompts with 'n' answers each, expected at most {} "
                                   "answers",
                                   list.size(), kMaxPromptAnswers));
  }
  for (const json& one : list) {
    const bool same_kind = !several || one.type() == list.front().type();
    if (!same_kind || !ReadPrompt(fields, one, out.prompts.emplace_back(request))) {
      return fields.Fail(
          "invalid_type", "prompt",
          "is not a text, a list of texts, a list of token ids or a list of such lists");
    }
  }
}

// prompt_logprobs of vLLM: those of the prompt, in an answer that is sent at once.
void ReadPromptLogprobs(FieldReader& fields, AnswerRequest& out, Request& request) {
  const auto top = fields.Integer("prompt_logprobs", 0, kMaxTopLogprobs);
  if (top && out.stream) {
    fields.Fail("unsupported_value", "prompt_logprobs", "is given with 'stream': true");
  }
  out.prompt_logprobs = static_cast<int32_t>(top.value_or(-1));
  request.prompt_logprobs = out.prompt_logprobs;
}

// What completions show of their prompts and tokens. `request`: without a prompt.
void ReadShown(FieldReader& fields, const BodyContext& context, AnswerRequest& out,
               Request& request) {
  out.echo = fields.Boolean("echo").value_or(false);
  out.token_ids = fields.Boolean("return_token_ids").value_or(false);
  out.add_bos = fields.Boolean("add_special_tokens").value_or(true);
  out.logprobs = request.top_logprobs;
  ReadPromptLogprobs(fields, out, request);
  if (out.echo) request.prompt_logprobs = std::max(request.prompt_logprobs, out.logprobs);
  // Parts of streams have the ids of their tokens next to the log-probabilities.
  if (out.token_ids && out.stream && !context.denoises) {
    request.top_logprobs = std::max(request.top_logprobs, 0);
  }
}

ApiResult<AnswerRequest> Finish(const FieldReader& fields, AnswerRequest out) {
  if (fields.error()) return tl::unexpected(*fields.error());
  NameIgnored(fields, out);
  return out;
}

}  // namespace

ApiResult<AnswerRequest> ReadChatRequest(const json& body, const BodyContext& context) {
  FieldReader fields(body);
  AnswerRequest out;
  Request& request = out.prompts.emplace_back();
  ReadCommon(fields, context, request);
  ReadCount(fields, context, out);
  ReadStreaming(fields, context, out);
  json messages = ReadMessages(fields, request.media);
  ReadTemplateFields(fields, out, request, messages);
  request.messages = messages.dump();
  ReadChatLogprobs(fields, request);
  ReadPromptLogprobs(fields, out, request);
  const ToolFields tools = ReadTools(fields);
  ApplyOutput(fields, context, tools, ReadTextForm(fields, context), request, out);
  if (const json* kinds = fields.Find("modalities"); kinds && *kinds != json::array({"text"})) {
    fields.Fail("unsupported_value", "modalities", "is not [\"text\"]; only text is written");
  }
  const auto tokens = ReadMaxTokens(fields, "max_tokens", context.capacity);
  request.max_tokens = ReadMaxTokens(fields, "max_completion_tokens", context.capacity)
                           .value_or(tokens.value_or(-1));
  return Finish(fields, std::move(out));
}

ApiResult<AnswerRequest> ReadTextRequest(const json& body, const BodyContext& context) {
  FieldReader fields(body);
  AnswerRequest out;
  Request request;
  ReadCommon(fields, context, request);
  ReadCount(fields, context, out);
  ReadStreaming(fields, context, out);
  request.top_logprobs =
      static_cast<int32_t>(fields.Integer("logprobs", 0, kMaxTopLogprobs).value_or(-1));
  ReadShown(fields, context, out, request);
  ApplyOutput(fields, context, {}, ReadTextForm(fields, context), request, out);
  request.max_tokens = fields.Integer("max_tokens", 0).value_or(kDefaultTextTokens);
  if (fields.Integer("best_of", 1).value_or(out.n) != out.n) {
    fields.Fail("unsupported_value", "best_of", "is not the same as 'n'; leave it out");
  }
  ReadPrompts(fields, request, out);
  return Finish(fields, std::move(out));
}

}  // namespace rullama::server
