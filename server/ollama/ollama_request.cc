#include "server/ollama/ollama_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <string_view>

#include "server/adapter_fields.h"
#include "server/field_reader.h"
#include "server/form_fields.h"
#include "server/json_body.h"
#include "server/media_fields.h"
#include "server/message_fields.h"
#include "server/sampling_fields.h"
#include "server/tool_fields.h"

namespace rullama::server {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 4> kLevels = {"low", "medium", "high", "max"};
// Members of /api/generate whose meaning would be lost.
constexpr std::array<std::string_view, 2> kOllamaRefused = {"suffix", "template"};

void ReadThink(FieldReader& fields, Request& request) {
  const json* think = fields.Find("think");
  if (think == nullptr) return;
  if (think->is_boolean()) {
    request.thinking = think->get<bool>();
  } else if (!think->is_string()) {
    fields.Fail("invalid_type", "think", "is neither true, false nor a level");
  } else if (std::find(kLevels.begin(), kLevels.end(), think->get<std::string>()) ==
             kLevels.end()) {
    fields.Fail("invalid_value", "think",
                fmt::format("is not one of {}", fmt::join(kLevels, ", ")));
  } else {
    request.thinking = true;
  }
}

TextForm ReadOllamaFormat(FieldReader& fields, const BodyContext& context) {
  TextForm out;
  out.name = "format";
  RefuseOtherForms(fields, out.name);
  const json* format = fields.Find("format");
  if (format == nullptr || IsEmptyText(*format)) return out;
  if (format->is_object()) {
    out.kind = TextForm::Kind::kJsonSchema;
    out.schema = OrderedText(context.text, {"format"});
  } else if (*format == "json") {
    out.kind = TextForm::Kind::kJsonObject;
  } else {
    fields.Fail(format->is_string() ? "invalid_value" : "invalid_type", "format",
                "is neither \"json\" nor a JSON schema");
  }
  return out;
}

void ReadOptions(FieldReader& fields, const BodyContext& context, AnswerRequest& out,
                 Request& request) {
  const json* options = fields.Object("options");
  if (options == nullptr) {
    request.adapters = AdaptersOfName(context);
    return;
  }
  FieldReader inner(*options, "options.");
  RefuseOtherForms(inner, "format");
  ReadSampling(inner, request.sampling);
  if (context.denoises) IgnoreSampling(inner);
  ReadStop(inner, request.stop);
  request.slot = ReadSlot(inner, context.slots);
  request.adapters = ReadAdapters(inner, context);
  const auto predicted = inner.Integer("num_predict", -2);
  if (predicted) request.max_tokens = *predicted < 0 ? context.capacity : *predicted;
  request.max_draft = inner.Integer("draft_num_predict", 0).value_or(-1);
  if (const auto size = inner.Integer("num_ctx", 1)) {
    request.max_context = std::min(*size, context.capacity);
    if (*size > context.capacity) {
      out.ignored.push_back(fmt::format("num_ctx>{}", context.capacity));
    }
  }
  NameIgnored(inner, out);
  fields.Fail(inner.error());
}

void ReadCommonMembers(FieldReader& fields, const BodyContext& context, OllamaRequest& out) {
  AnswerRequest& answer = out.answer;
  Request& request = answer.prompts.emplace_back();
  const auto model = fields.Text("model");
  if (!model || model->empty()) {
    fields.Fail("missing_required_parameter", "model", "is missing; name the model");
  }
  answer.stream = fields.Boolean("stream").value_or(true);
  ReadOptions(fields, context, answer, request);
  ReadThink(fields, request);
  const bool logprobs = fields.Boolean("logprobs").value_or(false);
  const auto top = fields.Integer("top_logprobs", 0, kMaxTopLogprobs).value_or(0);
  if (logprobs) request.top_logprobs = static_cast<int32_t>(top);
  out.keep_alive = ReadKeepAlive(fields);
  out.truncate = fields.Boolean("truncate").value_or(false);
  if (fields.Boolean("shift").value_or(false)) {
    fields.Fail("unsupported_value", "shift",
                "is true, but a context that is full ends the answer; leave it out");
  }
}

ApiResult<OllamaRequest> FinishOllama(const FieldReader& fields, OllamaRequest out) {
  if (fields.error()) return tl::unexpected(*fields.error());
  NameIgnored(fields, out.answer);
  return out;
}

}  // namespace

std::optional<KeepAlive> ReadKeepAlive(FieldReader& fields) {
  const json* keep = fields.Find("keep_alive");
  if (keep == nullptr) return std::nullopt;
  std::optional<KeepAlive> duration;
  if (keep->is_number()) duration = KeepAliveOf(keep->get<double>());
  if (keep->is_string()) duration = ParseKeepAlive(keep->get_ref<const std::string&>());
  if (!duration) {
    fields.Fail("invalid_value", "keep_alive",
                "is not a duration; expected one such as \"1h30m\", or a number of seconds");
  }
  return duration;
}

ApiResult<OllamaRequest> ReadOllamaChat(const json& body, const BodyContext& context) {
  FieldReader fields(body);
  OllamaRequest out;
  ReadCommonMembers(fields, context, out);
  Request& request = out.answer.prompts.front();
  const json messages = ReadOllamaMessages(fields, request.media);
  out.empty = messages.empty();
  request.messages = messages.dump();
  const ToolFields tools = ReadTools(fields);
  ApplyOutput(fields, context, tools, ReadOllamaFormat(fields, context), request, out.answer);
  return FinishOllama(fields, std::move(out));
}

ApiResult<OllamaRequest> ReadOllamaGenerate(const json& body, const BodyContext& context) {
  FieldReader fields(body);
  OllamaRequest out;
  ReadCommonMembers(fields, context, out);
  Request& request = out.answer.prompts.front();
  const std::string prompt = fields.Text("prompt").value_or("");
  const std::string system = fields.Text("system").value_or("");
  const bool raw = fields.Boolean("raw").value_or(false);
  out.empty = prompt.empty();
  for (const std::string_view name : kOllamaRefused) {
    const json* found = fields.Find(name);
    if (found != nullptr && !IsEmptyText(*found)) {
      fields.Fail("unsupported_parameter", name, "is not supported; leave it out");
    }
  }
  const json* tokens = fields.Find("context");
  if (tokens != nullptr && !tokens->empty()) {
    fields.Fail("unsupported_parameter", "context", "is not supported; leave it out");
  }
  const json* images = fields.Find("images");
  json parts = json::array();
  if (images != nullptr && !images->empty()) {
    parts = ReadMediaList(fields, "images", *images, request.media);
    if (raw) {
      fields.Fail("invalid_value", "images", "is given with 'raw'; leave one of them out");
    }
  }
  if (raw && !system.empty()) {
    fields.Fail("invalid_value", "system", "is given with 'raw', which has no turns; leave it out");
  }
  if (raw) {
    request.prompt = prompt;
    request.thinking.reset();
  } else {
    json messages = json::array();
    if (!system.empty()) messages.push_back({{"role", "system"}, {"content", system}});
    json content = prompt;
    if (!parts.empty()) {
      parts.push_back({{"type", "text"}, {"text", prompt}});
      content = std::move(parts);
    }
    messages.push_back({{"role", "user"}, {"content", std::move(content)}});
    request.messages = messages.dump();
  }
  ApplyOutput(fields, context, {}, ReadOllamaFormat(fields, context), request, out.answer);
  return FinishOllama(fields, std::move(out));
}

int64_t TruncateMessages(Request& request, int64_t fits,
                         const std::function<int64_t(const Request&)>& count) {
  const json all = json::parse(request.messages);
  // A turn begins with a message of the user; the first ones may be of the system.
  std::vector<size_t> begins;
  const auto system_end = static_cast<size_t>(std::find_if(all.begin(), all.end(),
                                                           [](const json& message) {
                                                             return message["role"] != "system" &&
                                                                    message["role"] != "developer";
                                                           }) -
                                              all.begin());
  for (size_t i = system_end; i < all.size(); ++i) {
    if (all[i]["role"] == "user") begins.push_back(i);
  }
  const auto without = [&](size_t turn) {
    json kept = json::array();
    std::vector<size_t> indices;
    for (size_t i = 0; i < all.size(); ++i) {
      if (i >= system_end && i < begins[turn]) continue;
      kept.push_back(all[i]);
      indices.push_back(i);
    }
    Request shorter = request;
    KeepMediaOf(all, indices, shorter.media);
    shorter.messages = kept.dump();
    return shorter;
  };
  // The fewest turns to leave out: the number of tokens falls with each.
  size_t low = 0;
  size_t high = begins.empty() ? 0 : begins.size() - 1;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (count(without(middle)) <= fits) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  if (low == 0) return 0;
  request = without(low);
  return static_cast<int64_t>(begins[low] - system_end);
}

}  // namespace rullama::server
