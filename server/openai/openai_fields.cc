#include "server/openai/openai_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "server/adapter_fields.h"
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

// Members of llama-server have the names "speculative.n_max" and "speculative.p_min".
void ReadDrafts(FieldReader& fields, Request& request) {
  const RealRange probabilities = Reals(0, 1);
  request.max_draft = fields.Integer("speculative.n_max", 0).value_or(-1);
  request.min_draft_probability = fields.Number("speculative.p_min", probabilities).value_or(-1);
  const nlohmann::json* members = fields.Object("speculative");
  if (members == nullptr) return;
  FieldReader inner(*members, "speculative.");
  if (const auto most = inner.Integer("max", 0)) request.max_draft = *most;
  if (const auto least = inner.Number("min_probability", probabilities)) {
    request.min_draft_probability = *least;
  }
  fields.Fail(inner.error());
  for (const std::string& name : inner.Unknown()) {
    fields.Fail("unsupported_parameter", name, "is not known, expected max or min_probability");
  }
}

}  // namespace

void ReadSettings(FieldReader& fields, const BodyContext& context, Request& request) {
  ReadSampling(fields, request.sampling);
  request.reuse_prefix = fields.Boolean("cache_prompt").value_or(true);
  request.slot = ReadSlot(fields, context.slots);
  request.adapters = ReadAdapters(fields, context);
  request.ignore_end = fields.Boolean("ignore_eos").value_or(false);
  ReadDrafts(fields, request);
  if (!context.denoises) return;
  IgnoreSampling(fields);
  for (const char* name : {"ignore_eos", "speculative"}) fields.Ignore(name);
}

void ReadCommon(FieldReader& fields, const BodyContext& context, Request& request) {
  fields.Text("model");
  ReadSettings(fields, context, request);
  ReadBias(fields, request.sampling.logit_bias);
  ReadStop(fields, request.stop);
  if (context.denoises && !request.sampling.logit_bias.empty()) {
    fields.Fail("unsupported_value", "logit_bias",
                "is given, but this model denoises canvases; leave it out");
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
    fields.Fail("invalid_value", name, fmt::format("is not one of {}", fmt::join(kEfforts, ", ")));
  }
  return *effort != "none";
}

void ApplyOutput(FieldReader& fields, const BodyContext& context, const ToolFields& tools,
                 const TextForm& form, Request& request, AnswerRequest& out) {
  if (context.denoises) {
    const auto refuse = [&fields](std::string_view name, std::string_view what) {
      fields.Fail("unsupported_value", name,
                  fmt::format("asks for {}, but this model denoises canvases; leave it out", what));
    };
    if (form.kind != TextForm::Kind::kText) refuse(form.name, "a form of the answer");
    if (tools.choice == ToolChoice::kRequired) refuse("tool_choice", "a call");
    if (request.prompt_logprobs >= 0) refuse("prompt_logprobs", "log-probabilities");
    if (request.top_logprobs >= 0) {
      refuse(fields.Find("logprobs") != nullptr ? "logprobs" : "include", "log-probabilities");
    }
  }
  // Arguments of calls are written in the order of the body.
  if (!tools.tools.empty()) {
    request.tools = tools.flat ? tools.tools.dump() : OrderedText(context.text, {"tools"});
  }
  if (!tools.ordered.empty()) request.tools = tools.ordered;
  request.tool_choice = tools.choice;
  request.allowed_tools = tools.allowed;
  request.parallel_tool_calls = tools.parallel;
  request.json_schema =
      form.kind == TextForm::Kind::kJsonObject ? R"({"type":"object"})" : form.schema;
  request.pattern = form.pattern;
  request.choices = form.choices;
  out.form_name = form.name;
  out.ignored.insert(out.ignored.end(), form.ignored.begin(), form.ignored.end());
}

void NameIgnored(const FieldReader& fields, AnswerRequest& out) {
  for (std::string& name : fields.Unknown()) out.ignored.push_back(std::move(name));
}

}  // namespace rullama::server
