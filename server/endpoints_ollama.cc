#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "server/answer_parts.h"
#include "server/answer_run.h"
#include "server/embedding_request.h"
#include "server/endpoints.h"
#include "server/json_body.h"
#include "server/ollama_request.h"

namespace rullama::server {
namespace {

using nlohmann::json;

// The level of Ollama's API that this one corresponds to. Clients split it at its dots.
constexpr const char* kApiLevel = "0.20.0";
constexpr size_t kMostItems = 16;  // of a list in `model_info`
constexpr const char* kForEver = "2318-01-01T00:00:00Z";

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

json EntryOf(const ModelHost& host) {
  const ModelInfo& info = host.info();
  return {{"name", host.model().id},
          {"model", host.model().id},
          {"size", info.file_bytes},
          {"digest", info.digest},
          {"details", DetailsOf(info)}};
}

std::string ModifiedAt(const ModelHost& host) {
  return TimeText(int64_t{host.model().time} * 1'000'000'000);
}

// Lines "temperature 1".
std::string ParameterLines(const SamplingDefaults& sampling) {
  return fmt::format("temperature {}\ntop_k {}\ntop_p {}\n", sampling.temperature, sampling.top_k,
                     sampling.top_p);
}

// The model of a body's `model` or `name`.
ApiResult<void> CheckModel(const Services& services, FieldReader& fields) {
  const auto name = fields.Text("name");
  const auto model = fields.Text("model");
  const std::string asked = model.value_or(name.value_or(""));
  if (asked.empty()) {
    fields.Fail("missing_required_parameter", "model", "is missing; name the model");
  }
  if (fields.error()) return tl::unexpected(*fields.error());
  return services.model.CheckName(asked);
}

// Loads or unloads the model, and says so.
void SendLoaded(const Services& services, Call& call, OllamaAnswer kind, bool unload,
                const std::vector<std::string>& ignored) {
  if (unload) services.model.Unload();
  json body = {{"model", services.model.model().id},
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
  const auto body = ParseBody(call.request().body);
  if (!body) return call.Fail(body.error());
  const auto context = ContextOf(services, call.request().body);
  if (!context) return call.Fail(context.error());
  auto request = read(*body, context->body);
  if (!request) return call.Fail(request.error());
  if (const auto model = services.model.CheckName(request->answer.model); !model) {
    return call.Fail(model.error());
  }
  const std::shared_ptr<Engine>& engine = context->engine;
  if (request->empty) {
    return SendLoaded(services, call, kind, request->unload, request->answer.ignored);
  }
  int64_t truncated = 0;
  Request& prompt = request->answer.prompts.front();
  if (request->truncate && !prompt.messages.empty()) {
    const int64_t capacity = engine->info().capacity;
    const int64_t fits = prompt.max_context > 0 ? std::min(prompt.max_context, capacity) : capacity;
    truncated = TruncateMessages(
        prompt, fits - 1, [&](const Request& one) { return engine->CountPrompt(one).value_or(0); });
  }
  const auto format = MakeOllamaFormat(IdentityOf(services, engine), kind, truncated);
  RunAnswer(services, call, *engine, request->answer, *format);
  if (request->unload) services.model.Unload();
}

// The inputs of one of the two endpoints as vectors.
ApiResult<Embedded> EmbedInputs(const Services& services, Call& call, FieldReader& fields,
                                std::string_view name, AnswerRequest& ignored) {
  const auto model = CheckModel(services, fields);
  const auto inputs = ReadInputs(fields, name, /*ids=*/false, /*may_be_empty=*/name == "input");
  const auto dimensions = fields.Integer("dimensions", 1, services.model.info().width);
  const bool truncate = fields.Boolean("truncate").value_or(false);
  ReadKeepAlive(fields, ignored);
  fields.Find("options");
  if (fields.error()) return tl::unexpected(*fields.error());
  if (!model) return tl::unexpected(model.error());
  NameIgnored(fields, ignored);
  return EmbedAll(services, call, inputs, dimensions, truncate);
}

}  // namespace

void OllamaVersion(const Services& services, Call& call) {
  call.SendJson({{"version", kApiLevel}, {"rullama", services.options.version}});
}

void OllamaTags(const Services& services, Call& call) {
  json entry = EntryOf(services.model);
  entry["modified_at"] = ModifiedAt(services.model);
  call.SendJson({{"models", json::array({std::move(entry)})}});
}

void OllamaPs(const Services& services, Call& call) {
  json models = json::array();
  if (services.model.loaded()) {
    const ModelInfo& info = services.model.info();
    json entry = EntryOf(services.model);
    entry["expires_at"] = kForEver;
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
  const auto model = CheckModel(services, fields);
  const bool verbose = fields.Boolean("verbose").value_or(false);
  fields.Find("system");
  fields.Find("options");
  if (fields.error()) return call.Fail(*fields.error());
  if (!model) return call.Fail(model.error());
  const auto engine = services.model.Acquire();
  if (!engine) return call.Fail(engine.error());
  const ModelInfo& info = services.model.info();
  call.SendJson({{"modelfile", fmt::format("FROM {}\n", services.model.model().id)},
                 {"parameters", ParameterLines(info.sampling)},
                 {"template", "{{ .Prompt }}"},
                 {"system", ""},
                 {"license", ""},
                 {"details", DetailsOf(info)},
                 {"model_info", json::parse((*engine)->Metadata(
                                    verbose ? std::numeric_limits<size_t>::max() : kMostItems))},
                 {"capabilities", {"completion", "tools", "thinking"}},
                 {"modified_at", ModifiedAt(services.model)}},
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
  AnswerRequest ignored;
  const auto embedded = EmbedInputs(services, call, fields, "input", ignored);
  if (!embedded) return call.Fail(embedded.error());
  call.SendJson({{"model", services.model.model().id},
                 {"embeddings", embedded->vectors},
                 {"total_duration", Nanoseconds(SecondsSince(call.begin()))},
                 {"load_duration", 0},
                 {"prompt_eval_count", embedded->tokens}},
                ignored.ignored);
}

void OllamaEmbeddings(const Services& services, Call& call) {
  const auto body = ParseBody(call.request().body);
  if (!body) return call.Fail(body.error());
  FieldReader fields(*body);
  AnswerRequest ignored;
  const auto embedded = EmbedInputs(services, call, fields, "prompt", ignored);
  if (!embedded) return call.Fail(embedded.error());
  call.SendJson({{"embedding", embedded->vectors.front()}}, ignored.ignored);
}

}  // namespace rullama::server
