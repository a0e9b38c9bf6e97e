#include "server/chat_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "server/field_reader.h"

namespace rullama::server {
namespace {

using nlohmann::json;

constexpr size_t kMaxMessages = 4096;
constexpr size_t kMaxStops = 16;
constexpr size_t kMaxStopBytes = 256;
constexpr size_t kMaxBiases = 1024;
constexpr int64_t kDefaultTextTokens = 16;  // of /v1/completions, as OpenAI has it

struct NumberField {
  std::string_view name;
  double low;
  double high;
  std::optional<double> SamplingOptions::*member;
};
constexpr std::array<NumberField, 7> kNumbers = {{
    {"temperature", 0, 100, &SamplingOptions::temperature},
    {"top_p", 0, 1, &SamplingOptions::top_p},
    {"min_p", 0, 1, &SamplingOptions::min_p},
    {"typical_p", 0, 1, &SamplingOptions::typical_p},
    {"repeat_penalty", 0, 100, &SamplingOptions::repeat_penalty},
    {"frequency_penalty", -2, 2, &SamplingOptions::frequency_penalty},
    {"presence_penalty", -2, 2, &SamplingOptions::presence_penalty},
}};

struct IntegerField {
  std::string_view name;
  int64_t low;
  int64_t high;
  std::optional<int64_t> SamplingOptions::*member;
};
constexpr std::array<IntegerField, 2> kIntegers = {{
    {"top_k", 0, std::numeric_limits<int32_t>::max(), &SamplingOptions::top_k},
    {"repeat_last_n", -1, std::numeric_limits<int32_t>::max(), &SamplingOptions::repeat_last_n},
}};

// Members that are accepted and need nothing done.
constexpr std::array<std::string_view, 8> kHarmless = {
    "user",       "metadata",         "service_tier",           "safety_identifier",
    "prediction", "prompt_cache_key", "prompt_cache_retention", "verbosity"};
// Members whose meaning would be lost.
constexpr std::array<std::string_view, 5> kRefused = {"audio", "web_search_options", "functions",
                                                      "function_call", "suffix"};

void NotImplemented(FieldReader& fields, std::string_view name, std::string_view what) {
  fields.Fail("not_implemented", name,
              fmt::format("asks for {}, which this server does not do yet; leave it out", what));
}

void ReadSampling(FieldReader& fields, SamplingOptions& sampling) {
  for (const NumberField& row : kNumbers) {
    if (const auto value = fields.Number(row.name, row.low, row.high)) sampling.*row.member = value;
  }
  for (const IntegerField& row : kIntegers) {
    if (const auto value = fields.Integer(row.name, row.low, row.high)) {
      sampling.*row.member = value;
    }
  }
  sampling.seed = fields.Integer("seed", 0);
}

void ReadBias(FieldReader& fields, std::map<int32_t, float>& biases) {
  const json* found = fields.Object("logit_bias");
  if (found == nullptr) return;
  if (found->size() > kMaxBiases) {
    return fields.Fail(
        "invalid_value", "logit_bias",
        fmt::format("has {} entries, expected at most {}", found->size(), kMaxBiases));
  }
  for (const auto& [name, value] : found->items()) {
    int32_t token = -1;
    const auto [end, failure] = std::from_chars(name.data(), name.data() + name.size(), token);
    if (failure != std::errc() || end != name.data() + name.size() || token < 0) {
      return fields.Fail("invalid_value", "logit_bias", "has a key that is no token id");
    }
    if (!value.is_number() || std::abs(value.get<double>()) > 100) {
      return fields.Fail("invalid_value", "logit_bias", "has a bias that is not -100 to 100");
    }
    const auto bias = value.get<float>();
    biases[token] = bias <= -100 ? -std::numeric_limits<float>::infinity() : bias;
  }
}

void ReadStop(FieldReader& fields, std::vector<std::string>& stops) {
  const json* found = fields.Find("stop");
  if (found == nullptr) return;
  const json list = found->is_array() ? *found : json::array({*found});
  if (list.size() > kMaxStops) {
    return fields.Fail("invalid_value", "stop",
                       fmt::format("has {} texts, expected at most {}", list.size(), kMaxStops));
  }
  for (const json& text : list) {
    if (!text.is_string()) {
      return fields.Fail("invalid_type", "stop", "is no text and no list of texts");
    }
    const size_t bytes = text.get_ref<const std::string&>().size();
    if (bytes == 0 || bytes > kMaxStopBytes) {
      return fields.Fail(
          "invalid_value", "stop",
          fmt::format("has a text of {} bytes, expected 1 to {}", bytes, kMaxStopBytes));
    }
    stops.push_back(text.get<std::string>());
  }
}

void ReadStreaming(FieldReader& fields, CompletionRequest& out) {
  out.stream = fields.Boolean("stream").value_or(false);
  const json* options = fields.Object("stream_options");
  if (options == nullptr) return;
  FieldReader inner(*options, "stream_options.");
  out.include_usage = inner.Boolean("include_usage").value_or(false);
  inner.Boolean("include_obfuscation");
  fields.Fail(inner.error());
  for (std::string& name : inner.Unknown()) out.ignored.push_back(std::move(name));
  if (!out.stream) {
    fields.Fail("invalid_value", "stream_options", "is given without 'stream': true; leave it out");
  }
}

// Members of both endpoints.
void ReadCommon(FieldReader& fields, CompletionRequest& out) {
  out.model = fields.Text("model").value_or("");
  ReadSampling(fields, out.request.sampling);
  ReadBias(fields, out.request.sampling.logit_bias);
  ReadStop(fields, out.request.stop);
  ReadStreaming(fields, out);
  out.request.reuse_prefix = fields.Boolean("cache_prompt").value_or(true);
  if (fields.Integer("n", 1, 8).value_or(1) != 1) NotImplemented(fields, "n", "several answers");
  if (fields.Boolean("ignore_eos").value_or(false)) {
    NotImplemented(fields, "ignore_eos", "an answer without an end");
  }
  for (const std::string_view name : kHarmless) fields.Find(name);
  for (const std::string_view name : kRefused) {
    if (fields.Find(name) != nullptr) {
      fields.Fail("unsupported_parameter", name, "is not supported; leave it out");
    }
  }
  if (fields.Boolean("store").value_or(false)) {
    fields.Fail("unsupported_value", "store", "is true, but nothing is stored here; leave it out");
  }
}

// Whether the model is to think; the two ways to say it must agree.
void ReadThinking(FieldReader& fields, Request& request) {
  constexpr std::array<std::string_view, 6> kEfforts = {"none",   "minimal", "low",
                                                        "medium", "high",    "xhigh"};
  if (const auto effort = fields.Text("reasoning_effort")) {
    if (std::find(kEfforts.begin(), kEfforts.end(), *effort) == kEfforts.end()) {
      return fields.Fail("invalid_value", "reasoning_effort",
                         fmt::format("is none of {}", fmt::join(kEfforts, ", ")));
    }
    request.thinking = *effort != "none";
  }
  const json* arguments = fields.Object("chat_template_kwargs");
  if (arguments == nullptr) return;
  FieldReader inner(*arguments, "chat_template_kwargs.");
  const auto enabled = inner.Boolean("enable_thinking");
  if (enabled && request.thinking && *enabled != *request.thinking) {
    inner.Fail("invalid_value", "enable_thinking", "contradicts 'reasoning_effort'; give one");
  }
  if (enabled) request.thinking = enabled;
  for (const std::string& name : inner.Unknown()) {
    inner.Fail("unsupported_parameter", name.substr(21), "is no argument of this template");
  }
  fields.Fail(inner.error());
}

void ReadTools(FieldReader& fields, Request& request) {
  const json* tools = fields.Find("tools");
  const json* choice = fields.Find("tool_choice");
  if (choice != nullptr && *choice != "auto" && *choice != "none") {
    if (choice->is_object() || *choice == "required") {
      return NotImplemented(fields, "tool_choice", "a call that is forced");
    }
    return fields.Fail("invalid_value", "tool_choice", "is none of auto, none, required");
  }
  const bool parallel = fields.Boolean("parallel_tool_calls").value_or(true);
  if (tools == nullptr) return;
  if (!tools->is_array()) return fields.Fail("invalid_type", "tools", "is no list");
  if (tools->empty()) return;
  if (choice != nullptr && *choice == "none") {
    return NotImplemented(fields, "tool_choice", "tools that must not be called");
  }
  if (!parallel) return NotImplemented(fields, "parallel_tool_calls", "one call at most");
  request.tools = tools->dump();
}

void ReadFormat(FieldReader& fields) {
  const json* format = fields.Object("response_format");
  if (format == nullptr) return;
  FieldReader inner(*format, "response_format.");
  const auto type = inner.Text("type");
  if (!type) inner.Fail("missing_required_parameter", "type", "is missing; expected \"text\"");
  if (type == "json_object" || type == "json_schema") {
    NotImplemented(inner, "type", "an answer of a given form");
  } else if (type && *type != "text") {
    inner.Fail("invalid_value", "type", "is none of text, json_object, json_schema");
  }
  fields.Fail(inner.error());
}

void ReadMessages(FieldReader& fields, Request& request) {
  const json* messages = fields.Find("messages");
  if (messages == nullptr) {
    return fields.Fail("missing_required_parameter", "messages",
                       "is missing; give a list of messages");
  }
  if (!messages->is_array()) return fields.Fail("invalid_type", "messages", "is no list");
  if (messages->empty() || messages->size() > kMaxMessages) {
    return fields.Fail(
        "invalid_value", "messages",
        fmt::format("has {} messages, expected 1 to {}", messages->size(), kMaxMessages));
  }
  request.messages = messages->dump();
}

void ReadPrompt(FieldReader& fields, Request& request) {
  const json* prompt = fields.Find("prompt");
  if (prompt == nullptr) {
    return fields.Fail("missing_required_parameter", "prompt", "is missing; give a text");
  }
  if (prompt->is_string()) {
    request.prompt = prompt->get<std::string>();
    if (request.prompt.empty()) fields.Fail("invalid_value", "prompt", "is empty; give a text");
    return;
  }
  if (!prompt->is_array() || prompt->empty()) {
    return fields.Fail("invalid_type", "prompt", "is no text and no list of token ids");
  }
  for (const json& id : *prompt) {
    if (id.is_string() || id.is_array()) {
      return NotImplemented(fields, "prompt", "several prompts");
    }
    if (!id.is_number_unsigned() || id.get<uint64_t>() > std::numeric_limits<int32_t>::max()) {
      return fields.Fail("invalid_type", "prompt", "has an element that is no token id");
    }
    request.ids.push_back(id.get<int32_t>());
  }
}

ApiResult<CompletionRequest> Finish(FieldReader& fields, CompletionRequest out) {
  if (fields.error()) return tl::unexpected(*fields.error());
  for (std::string& name : fields.Unknown()) out.ignored.push_back(std::move(name));
  return out;
}

}  // namespace

ApiResult<CompletionRequest> ReadChatRequest(const json& body) {
  FieldReader fields(body);
  CompletionRequest out;
  ReadCommon(fields, out);
  ReadMessages(fields, out.request);
  ReadThinking(fields, out.request);
  ReadTools(fields, out.request);
  ReadFormat(fields);
  if (fields.Boolean("logprobs").value_or(false)) {
    NotImplemented(fields, "logprobs", "log-probabilities");
  }
  if (fields.Integer("top_logprobs", 0, 20)) {
    fields.Fail("invalid_value", "top_logprobs", "is given without 'logprobs': true");
  }
  if (const json* kinds = fields.Find("modalities"); kinds && *kinds != json::array({"text"})) {
    fields.Fail("unsupported_value", "modalities", "is not [\"text\"]; only text is written");
  }
  const auto tokens = fields.Integer("max_tokens", 1);
  out.request.max_tokens = fields.Integer("max_completion_tokens", 1).value_or(tokens.value_or(-1));
  return Finish(fields, std::move(out));
}

ApiResult<CompletionRequest> ReadTextRequest(const json& body) {
  FieldReader fields(body);
  CompletionRequest out;
  ReadCommon(fields, out);
  ReadPrompt(fields, out.request);
  ReadFormat(fields);
  if (fields.Boolean("echo").value_or(false)) NotImplemented(fields, "echo", "the prompt again");
  if (fields.Integer("logprobs", 0, 20)) NotImplemented(fields, "logprobs", "log-probabilities");
  if (fields.Integer("best_of", 1, 8).value_or(1) != 1) {
    fields.Fail("unsupported_value", "best_of", "is not the same as 'n'; leave it out");
  }
  out.request.max_tokens = fields.Integer("max_tokens", 0).value_or(kDefaultTextTokens);
  return Finish(fields, std::move(out));
}

}  // namespace rullama::server
