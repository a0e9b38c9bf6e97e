#include "server/openai_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "server/json_body.h"
#include "server/sampling_fields.h"

namespace rullama::server {
namespace {

using nlohmann::json;

constexpr int64_t kMaxAnswers = 8;

// Members that are accepted and need nothing done.
constexpr std::array<std::string_view, 8> kHarmless = {
    "user",       "metadata",         "service_tier",           "safety_identifier",
    "prediction", "prompt_cache_key", "prompt_cache_retention", "verbosity"};
// Members whose meaning would be lost.
constexpr std::array<std::string_view, 5> kRefused = {"audio", "web_search_options", "functions",
                                                      "function_call", "suffix"};
constexpr std::array<std::string_view, 6> kEfforts = {"none",   "minimal", "low",
                                                      "medium", "high",    "xhigh"};

}  // namespace

void ReadCommon(FieldReader& fields, const BodyContext& context, Request& request) {
  fields.Text("model");
  ReadSampling(fields, request.sampling);
  ReadBias(fields, request.sampling.logit_bias);
  ReadStop(fields, request.stop);
  request.reuse_prefix = fields.Boolean("cache_prompt").value_or(true);
  request.ignore_end = fields.Boolean("ignore_eos").value_or(false);
  if (context.denoises) {
    IgnoreSampling(fields);
    fields.Ignore("ignore_eos");
    if (!request.sampling.logit_bias.empty()) {
      fields.Fail("unsupported_value", "logit_bias",
                  "is given, but this model denoises canvases; leave it out");
    }
  }
  for (const std::string_view name : kHarmless) fields.Find(name);
  for (const std::string_view name : kRefused) {
    const json* found = fields.Find(name);
    if (found == nullptr) continue;
    const auto* text = found->get_ptr<const std::string*>();
    if (text == nullptr || !text->empty()) {  // an empty suffix asks for nothing
      fields.Fail("unsupported_parameter", name, "is not supported; leave it out");
    }
  }
  if (fields.Boolean("store").value_or(false)) {
    fields.Fail("unsupported_value", "store", "is true, but nothing is stored here; leave it out");
  }
}

void ReadCount(FieldReader& fields, const BodyContext& context, AnswerRequest& out) {
  out.n = fields.Integer("n", 1, std::min(kMaxAnswers, context.slots)).value_or(1);
}

void ReadStreaming(FieldReader& fields, const BodyContext& context, AnswerRequest& out) {
  out.stream = fields.Boolean("stream").value_or(false);
  const json* options = fields.Object("stream_options");
  if (options == nullptr) return;
  FieldReader inner(*options, "stream_options.");
  out.include_usage = inner.Boolean("include_usage").value_or(false);
  inner.Boolean("include_obfuscation");
  const bool drafts = inner.Boolean("include_drafts").value_or(false);
  out.include_drafts = drafts && context.denoises;
  if (drafts && !context.denoises) inner.Ignore("include_drafts");
  fields.Fail(inner.error());
  for (std::string& name : inner.Unknown()) out.ignored.push_back(std::move(name));
  if (!out.stream) {
    fields.Fail("invalid_value", "stream_options", "is given without 'stream': true; leave it out");
  }
}

std::optional<bool> ReadEffort(FieldReader& fields, std::string_view name) {
  const auto effort = fields.Text(name);
  if (!effort) return std::nullopt;
  if (std::find(kEfforts.begin(), kEfforts.end(), *effort) == kEfforts.end()) {
    fields.Fail("invalid_value", name, fmt::format("is none of {}", fmt::join(kEfforts, ", ")));
  }
  return *effort != "none";
}

TextFormat ReadTextFormat(FieldReader& fields, const json& format,
                          const std::vector<std::string>& path, bool flat,
                          const BodyContext& context) {
  TextFormat out;
  const std::string place = fmt::format("{}", fmt::join(path, "."));
  if (!format.is_object()) {
    fields.Fail("invalid_type", place,
                fmt::format("is of type {}, expected an object", format.type_name()));
    return out;
  }
  FieldReader outer(format, place + ".");
  const auto type = outer.Text("type");
  if (!type) {
    outer.Fail("missing_required_parameter", "type", "is missing; expected \"text\"");
  } else if (*type == "json_object") {
    out.kind = TextFormat::Kind::kJsonObject;
  } else if (*type == "json_schema") {
    out.kind = TextFormat::Kind::kJsonSchema;
  } else if (*type != "text") {
    outer.Fail("invalid_value", "type", "is none of text, json_object, json_schema");
  }
  if (out.kind == TextFormat::Kind::kJsonSchema) {
    const json* holder = flat ? &format : outer.Object("json_schema");
    const json empty = json::object();
    FieldReader inner(holder == nullptr ? empty : *holder,
                      flat ? place + "." : place + ".json_schema.");
    if (!inner.Text("name")) {
      inner.Fail("missing_required_parameter", "name", "is missing; give the schema a name");
    }
    inner.Boolean("strict");
    inner.Text("description");
    if (inner.Find("schema") == nullptr) {
      inner.Fail("missing_required_parameter", "schema", "is missing; give a JSON schema");
    } else {
      std::vector<std::string> members = path;
      if (!flat) members.emplace_back("json_schema");
      members.emplace_back("schema");
      out.schema = OrderedText(context.text, members);
    }
    fields.Fail(inner.error());
  }
  fields.Fail(outer.error());
  return out;
}

void ApplyOutput(FieldReader& fields, const BodyContext& context, const ToolFields& tools,
                 const TextFormat& format, std::string_view format_name, Request& request) {
  if (context.denoises) {
    const auto refuse = [&fields](std::string_view name, std::string_view what) {
      fields.Fail("unsupported_value", name,
                  fmt::format("asks for {}, but this model denoises canvases; leave it out", what));
    };
    if (format.kind != TextFormat::Kind::kText) refuse(format_name, "a form of the answer");
    if (tools.choice == ToolChoice::kRequired) refuse("tool_choice", "a call");
    if (request.top_logprobs >= 0) {
      refuse(fields.Find("logprobs") != nullptr ? "logprobs" : "include", "log-probabilities");
    }
  }
  // Arguments of calls are written in the order of the body.
  if (!tools.tools.empty()) {
    request.tools = tools.flat ? tools.tools.dump() : OrderedText(context.text, {"tools"});
  }
  request.tool_choice = tools.choice;
  request.allowed_tools = tools.allowed;
  request.parallel_tool_calls = tools.parallel;
  if (format.kind == TextFormat::Kind::kJsonObject) request.json_schema = R"({"type":"object"})";
  if (format.kind == TextFormat::Kind::kJsonSchema) request.json_schema = format.schema;
}

void NameIgnored(const FieldReader& fields, AnswerRequest& out) {
  for (std::string& name : fields.Unknown()) out.ignored.push_back(std::move(name));
}

}  // namespace rullama::server
