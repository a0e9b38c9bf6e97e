#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "server/adapter_fields.h"
#include "server/answer_run.h"
#include "server/base64.h"
#include "server/endpoints.h"
#include "server/json_body.h"
#include "server/openai/chat_request.h"
#include "server/openai/embedding_request.h"
#include "server/openai/responses_request.h"

namespace rullama::server {
namespace {

using nlohmann::json;

json ModelEntry(const ServedModel& model) {
  return {{"id", model.id},
          {"object", "model"},
          {"created", static_cast<int64_t>(model.time)},
          {"owned_by", "rullama"}};
}

using BodyReader = ApiResult<AnswerRequest> (*)(const json& body, const BodyContext& context);
using FormatMaker = std::unique_ptr<AnswerFormat> (*)(AnswerIdentity identity,
                                                      const AnswerRequest& request);

StreamOptions StreamOptionsOf(const AnswerRequest& request) {
  return {.usage = request.include_usage,
          .drafts = request.include_drafts,
          .prompt_logprobs = request.prompt_logprobs};
}

// The way from a body to an answer that both endpoints of completions go.
void Complete(const Services& services, Call& call, BodyReader read, FormatMaker make_format) {
  auto loaded = LoadRequest(services, call, read);
  if (!loaded) return call.Fail(loaded.error());
  AnswerRequest& request = loaded->request;
  Engine& engine = *loaded->model.engine;
  PreparePrompts(engine, request);
  if (const auto checked = CheckPromptLogprobs(engine, request); !checked) {
    return call.Fail(checked.error());
  }
  const auto format = make_format(IdentityOf(services, loaded->model), request);
  RunAnswer(services, call, engine, request, *format);
}

}  // namespace

void ListModels(const Services& services, Call& call) {
  if (call.dialect() == Dialect::kAnthropic) return ListAnthropicModels(services, call);
  json entries = json::array();
  for (const ModelState& state : services.models.All()) entries.push_back(ModelEntry(state.model));
  call.SendJson({{"object", "list"}, {"data", std::move(entries)}});
}

void ShowModel(const Services& services, Call& call) {
  constexpr std::string_view kModels = "/models/";  // after "/v1" or at the beginning
  const std::string& path = call.request().path;
  const std::string id = path.substr(path.find(kModels) + kModels.size());
  const std::string name = id.empty() ? "/" : id;  // no name is not any name
  if (call.dialect() == Dialect::kAnthropic) return ShowAnthropicModel(services, call, name);
  const auto found = services.models.Find(name);
  if (!found) return call.Fail(found.error());
  call.SendJson(ModelEntry(found->model));
}

void ChatCompletions(const Services& services, Call& call) {
  Complete(services, call, ReadChatRequest,
           [](AnswerIdentity identity, const AnswerRequest& request) {
             return MakeChatFormat(std::move(identity), StreamOptionsOf(request));
           });
}

void Completions(const Services& services, Call& call) {
  Complete(services, call, ReadTextRequest,
           [](AnswerIdentity identity, const AnswerRequest& request) {
             return MakeTextFormat(std::move(identity), StreamOptionsOf(request), request);
           });
}

void Responses(const Services& services, Call& call) {
  auto loaded = LoadRequest(services, call, ReadResponsesRequest);
  if (!loaded) return call.Fail(loaded.error());
  Engine& engine = *loaded->model.engine;
  const SamplingDefaults& defaults = engine.info().sampling;
  nlohmann::json& repeated = loaded->request.repeated;
  if (repeated["temperature"].is_null()) repeated["temperature"] = defaults.temperature;
  if (repeated["top_p"].is_null()) repeated["top_p"] = defaults.top_p;
  const auto format = MakeResponsesFormat(IdentityOf(services, loaded->model), std::move(repeated));
  RunAnswer(services, call, engine, loaded->request.answer, *format);
}

void ResponsesInputTokens(const Services& services, Call& call) {
  const auto loaded = LoadRequest(services, call, ReadResponsesRequest);
  if (!loaded) return call.Fail(loaded.error());
  const AnswerRequest& request = loaded->request.answer;
  const auto tokens = CountPromptTokens(call, *loaded->model.engine, request);
  if (!tokens) return call.Fail(tokens.error());
  call.SendJson({{"object", "response.input_tokens"}, {"input_tokens", *tokens}}, request.ignored);
}

void Embeddings(const Services& services, Call& call) {
  const auto body = ParseBody(call.request().body);
  if (!body) return call.Fail(body.error());
  const auto context = ContextOf(services, call, *body);
  if (!context) return call.Fail(context.error());
  FieldReader fields(*body);
  fields.Find("model");
  const auto inputs = ReadInputs(fields, "input", /*ids=*/true, /*may_be_empty=*/false);
  const auto format = fields.Text("encoding_format").value_or("float");
  if (format != "float" && format != "base64") {
    fields.Fail("invalid_value", "encoding_format", "is not one of float, base64");
  }
  EmbeddingSettings settings = ReadSettings(fields, *context->model.engine);
  settings.adapters = ReadAdapters(fields, context->body);
  fields.Find("user");
  if (fields.error()) return call.Fail(*fields.error());
  const auto embedded = EmbedAll(services, call, *context->model.engine, inputs, settings);
  if (!embedded) return call.Fail(embedded.error());
  for (const std::string& field : embedded->ignored) fields.Ignore(field);
  json data = json::array();
  // As the clients of OpenAI ask for: little-endian binary32 in base64.
  for (const std::vector<float>& values : embedded->vectors) {
    json entry = {{"object", "embedding"}, {"index", data.size()}};
    entry["embedding"] =
        format == "base64" ? json(Base64(std::as_bytes(std::span(values)))) : json(values);
    data.push_back(std::move(entry));
  }
  call.SendJson(
      {{"object", "list"},
       {"data", std::move(data)},
       {"model", context->model.id},
       {"usage", {{"prompt_tokens", embedded->tokens}, {"total_tokens", embedded->tokens}}}},
      fields.Unknown());
}

}  // namespace rullama::server
