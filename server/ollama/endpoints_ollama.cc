#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "server/adapter_fields.h"
#include "server/answer_parts.h"
#include "server/answer_run.h"
#include "server/endpoints.h"
#include "server/json_body.h"
#include "server/ollama/ollama_request.h"
#include "server/openai/embedding_request.h"

namespace rullama::server {
namespace {

using nlohmann::json;

// The level of Ollama's API that this one corresponds to. Clients split it at its dots.
constexpr const char* kApiLevel = "0.20.0";
constexpr size_t kMaxListedItems = 16;  // of a list in `model_info`
constexpr const char* kNever = "2318-01-01T00:00:00Z";

std::string ParameterText(int64_t parameters) {
  const auto count = static_cast<double>(parameters);
  if (count >= 1e9) return fmt::format("{:.1f}B", count / 1e9);
  if (count >= 1e6) return fmt::format("{:.1f}M", count / 1e6);
  return fmt::format("{:.1f}K", count / 1e3);
}

json DetailsOf(const ModelInfo& info) {
  return {{"parent_model", ""},
          {"format", "gguf"},
          {"family", info.architecture},
          {"families", {info.architecture}},
          {"parameter_size", ParameterText(info.parameters)},
          {"quantization_level", info.quantization}};
}

json EntryOf(const ServedModel& model) {
  const ModelInfo& info = model.info;
  return {{"name", model.id},
          {"model", model.id},
          {"size", info.file_bytes},
          {"digest", info.digest},
          {"details", DetailsOf(info)}};
}

std::string TimeOf(std::time_t seconds) { return TimeText(int64_t{seconds} * 1'000'000'000); }

// Lines "temperature 1".
std::string ParameterLines(const SamplingDefaults& sampling) {
  return fmt::format("temperature {}\ntop_k {}\ntop_p {}\n", sampling.temperature, sampling.top_k,
                     sampling.top_p);
}

// A body's `model` or `name`, which it must have.
std::string ReadName(FieldReader& fields) {
  const auto name = fields.Text("name");
  const auto model = fields.Text("model");
  std::string asked = model.value_or(name.value_or(""));
  if (asked.empty()) {
    fields.Fail("missing_required_parameter", "model", "is missing; name the model");
  }
  return asked;
}

// Says that the model was loaded, or unloaded.
void SendLoaded(Call& call, const std::string& model, OllamaAnswer kind, bool unload,
                const std::vector<std::string>& ignored) {
  json body = {{"model", model},
               {"created_at", TimeTextNow()},
               {"done", true},
               {"done_reason", unload ? "unload" : "load"}};
  if (kind == OllamaAnswer::kChat) {
    body["message"] = {{"role", "assistant"}, {"content", ""}};
  } else {
    body["response"] = "";
  }
  call.SendJson(body, ignored);
}

using OllamaReader = ApiResult<OllamaRequest> (*)(const json& body, const BodyContext& context);

void Answer(const Services& services, Call& call, OllamaReader read, OllamaAnswer kind) {
  auto body = ParseBody(call.request().body);
  if (!body) return call.Fail(body.error());
  auto context = ContextOf(services, call, *body);
  if (!context) return call.Fail(context.error());
  auto request = read(*body, context->body);
  *body = nullptr;  // the memory, while the answer is written
  if (!request) return call.Fail(request.error());
  UsedModel& model = context->model;
  if (request->keep_alive) services.models.Keep(model.id, *request->keep_alive);
  if (request->empty) {
    model.engine.reset();  // so that it is unloaded if it is not kept
    const bool unload = request->keep_alive == KeepAlive(0);
    return SendLoaded(call, model.id, kind, unload, request->answer.ignored);
  }
  Engine& engine = *model.engine;
  int64_t truncated = 0;
  Request& prompt = request->answer.prompts.front();
  if (request->truncate && !prompt.messages.empty()) {
    const int64_t rest = std::max<int64_t>(CanvasAfterPrompt(engine, prompt), 1);
    const int64_t fits = ContextLimit(engine, prompt) - rest;
    truncated = TruncateMessages(prompt, fits, [&](const Request& one) {
      const auto tokens = engine.CountPrompt(one, fits);
      if (!tokens && tokens.error().id == "context.overflow") return fits + 1;
      return tokens.value_or(0);
    });
  }
  const auto format = MakeOllamaFormat(IdentityOf(services, model), kind, truncated);
  RunAnswer(services, call, engine, request->answer, *format);
}

// Of `options` the adapters; the others say how tokens are drawn.
void ReadEmbeddingOptions(FieldReader& fields, const BodyContext& context,
                          EmbeddingSettings& settings) {
  static const json kNone = json::object();
  const json* options = fields.Object("options");
  FieldReader inner(options == nullptr ? kNone : *options, "options.");
  settings.adapters = ReadAdapters(inner, context);
  fields.Fail(inner.error());
}

// The inputs of one of the two endpoints as vectors, and the model that made them.
struct OllamaEmbedded {
  std::string model;
  Embedded result;
};
ApiResult<OllamaEmbedded> EmbedInputs(const Services& services, Call& call, FieldReader& fields,
                                      std::string_view name) {
  const std::string asked = ReadName(fields);
  if (fields.error()) return tl::unexpected(*fields.error());
  const auto model = AcquireModel(services, call, asked);
  if (!model) return tl::unexpected(model.error());
  auto inputs = ReadInputs(fields, name, /*ids=*/false, /*may_be_empty=*/name == "input");
  ReadImages(fields, inputs);
  EmbeddingSettings settings = ReadSettings(fields, *model->engine);
  settings.truncate = fields.Boolean("truncate").value_or(false);
  const auto keep_alive = ReadKeepAlive(fields);
  ReadEmbeddingOptions(fields, BodyContextOf(*model, call.request().body), settings);
  if (fields.error()) return tl::unexpected(*fields.error());
  if (keep_alive) services.models.Keep(model->id, *keep_alive);
  auto result = EmbedAll(services, call, *model->engine, inputs, settings);
  if (!result) return tl::unexpected(result.error());
  for (const std::string& field : result->ignored) fields.Ignore(field);
  return OllamaEmbedded{model->id, *std::move(result)};
}

json CapabilitiesOf(const ModelDescription& model, bool embeddings) {
  json capabilities = json::array();
  if (model.writes) capabilities.push_back("completion");
  if (model.calls_tools) capabilities.push_back("tools");
  if (model.thinks) capabilities.push_back("thinking");
  if (model.embeds && embeddings) capabilities.push_back("embedding");
  if (model.takes_pictures) capabilities.push_back("vision");
  if (model.takes_sound) capabilities.push_back("audio");
  return capabilities;
}

}  // namespace

void OllamaVersion(const Services& services, Call& call) {
  call.SendJson({{"version", kApiLevel}, {"rullama", services.options.version}});
}

void OllamaTags(const Services& services, Call& call) {
  json models = json::array();
  for (const ModelState& state : services.models.All()) {
    json entry = EntryOf(state.model);
    entry["modified_at"] = TimeOf(state.model.time);
    models.push_back(std::move(entry));
  }
  call.SendJson({{"models", std::move(models)}});
}

void OllamaPs(const Services& services, Call& call) {
  json models = json::array();
  for (const ModelState& state : services.models.All()) {
    if (!state.loaded) continue;
    const ModelInfo& info = state.model.info;
    json entry = EntryOf(state.model);
    entry["expires_at"] = state.expires ? TimeOf(*state.expires) : kNever;
    entry["size_vram"] = info.backend == "cpu" ? 0 : info.file_bytes;
    entry["context_length"] = info.capacity;
    models.push_back(std::move(entry));
  }
  call.SendJson({{"models", std::move(models)}});
}

void OllamaShow(const Services& services, Call& call) {
  const auto body = ParseBody(call.request().body);
  if (!body) return call.Fail(body.error());
  FieldReader fields(*body);
  const std::string asked = ReadName(fields);
  const bool verbose = fields.Boolean("verbose").value_or(false);
  fields.Find("system");
  fields.Find("options");
  if (fields.error()) return call.Fail(*fields.error());
  const auto state = services.models.Find(asked);
  if (!state) return call.Fail(state.error());
  const ServedModel& model = state->model;
  call.record().model = model.id;
  const auto described =
      model.describe(verbose ? std::numeric_limits<size_t>::max() : kMaxListedItems);
  if (!described) return call.Fail(FromEngine(described.error()));
  call.SendJson({{"modelfile", fmt::format("FROM {}\n", model.id)},
                 {"parameters", ParameterLines(described->sampling)},
                 {"template", "{{ .Prompt }}"},
                 {"system", ""},
                 {"license", ""},
                 {"details", DetailsOf(model.info)},
                 {"model_info", json::parse(described->metadata)},
                 {"capabilities", CapabilitiesOf(*described, services.options.embeddings)},
                 {"modified_at", TimeOf(model.time)}},
                fields.Unknown());
}

void OllamaChat(const Services& services, Call& call) {
  Answer(services, call, ReadOllamaChat, OllamaAnswer::kChat);
}

void OllamaGenerate(const Services& services, Call& call) {
  Answer(services, call, ReadOllamaGenerate, OllamaAnswer::kGenerate);
}

void OllamaEmbed(const Services& services, Call& call) {
  const auto body = ParseBody(call.request().body);
  if (!body) return call.Fail(body.error());
  FieldReader fields(*body);
  const auto embedded = EmbedInputs(services, call, fields, "input");
  if (!embedded) return call.Fail(embedded.error());
  call.SendJson({{"model", embedded->model},
                 {"embeddings", embedded->result.vectors},
                 {"total_duration", Nanoseconds(SecondsSince(call.begin()))},
                 {"load_duration", 0},
                 {"prompt_eval_count", embedded->result.tokens}},
                fields.Unknown());
}

void OllamaEmbeddings(const Services& services, Call& call) {
  const auto body = ParseBody(call.request().body);
  if (!body) return call.Fail(body.error());
  FieldReader fields(*body);
  const auto embedded = EmbedInputs(services, call, fields, "prompt");
  if (!embedded) return call.Fail(embedded.error());
  call.SendJson({{"embedding", embedded->result.vectors.front()}}, fields.Unknown());
}

}  // namespace rullama::server
