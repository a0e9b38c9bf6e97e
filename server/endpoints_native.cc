#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/utf8.h"
#include "server/answer_run.h"
#include "server/chat_page.h"
#include "server/endpoints.h"
#include "server/json_body.h"
#include "server/openai/chat_request.h"
#include "server/sampling_fields.h"

namespace rullama::server {
namespace {

using nlohmann::json;

// {"id", "piece"}; a piece that is not UTF-8 is a list of its bytes.
json PieceOf(const Engine& engine, int32_t token) {
  const std::string bytes = engine.TokenBytes(token).value_or("");
  if (!FindInvalidUtf8(bytes)) return {{"id", token}, {"piece", bytes}};
  json list = json::array();
  for (const char byte : bytes) list.push_back(static_cast<unsigned char>(byte));
  return {{"id", token}, {"piece", std::move(list)}};
}

// The most tokens of a text that some request could have for its prompt.
int64_t LongestContext(const Engine& engine) {
  return std::max(engine.info().context_length, engine.info().capacity);
}

ApiError TooManyTokens(int64_t most, std::string param) {
  return MakeApiError("context_length_exceeded",
                      fmt::format("the text has more than {} tokens, the longest context of the "
                                  "model; send it in parts",
                                  most),
                      std::move(param));
}

json ModalitiesOf(const ModelInfo& info) {
  return {{"vision", info.takes_pictures}, {"audio", info.takes_sound}};
}

}  // namespace

void Root(const Services& services, Call& call) {
  if (services.options.page && call.request().accept.find("text/html") != std::string::npos) {
    call.Send(ChatPage());
    return;
  }
  call.Send({.status = 200,
             .content_type = "text/plain; charset=utf-8",
             .body = "Ollama is running",
             .fields = {}});
}

void Health(const Services& services, Call& call) {
  const bool draining = services.running.draining();
  const bool lost = services.models.lost();
  if (!draining && !lost) {
    call.SendJson({{"status", "ok"}});
    return;
  }
  const ApiError error =
      draining ? MakeApiError("shutting_down", "the server is shutting down")
               : MakeApiError("device_lost", "the device was lost; it is being opened again");
  json body = ErrorJson(Dialect::kOpenAi, error);
  body["status"] = draining ? "draining" : "lost";
  call.Send({.status = error.status,
             .content_type = "application/json",
             .body = Dump(body),
             .fields = error.fields});
}

void Props(const Services& services, Call& call) {
  const std::vector<ModelState> models = services.models.All();
  const ModelInfo& info = models.front().model.info;
  const EngineStats stats = services.models.stats();
  const SamplingDefaults& defaults = info.sampling;
  const RequestLimits& limits = services.options.limits;
  const json params = {
#define RL_SAMPLER_SETTING(Type, name, value, off, range, key, flag, help, doc) \
  {#name, defaults.name},
#include "core/config/sampler_settings.def"
  };
  json entries = json::array();
  for (const ModelState& state : models) {
    entries.push_back({{"id", state.model.id}, {"loaded", state.loaded}});
    if (state.loaded) entries.back()["modalities"] = ModalitiesOf(state.model.info);
  }
  json rullama = {{"version", services.options.version},
                  {"backend", info.backend},
                  {"device", info.device},
                  {"deterministic", info.deterministic},
                  {"models", std::move(entries)},
                  {"limits",
                   {{"max_queue", limits.max_queue},
                    {"max_queue_per_key", limits.max_queue_per_client},
                    {"max_body_bytes", services.options.max_body_bytes},
                    {"max_loaded_models", services.options.max_loaded_models},
                    {"queue_timeout_s", limits.queue_timeout.count() / 1000},
                    {"request_timeout_s", limits.request_timeout.count() / 1000}}},
                  {"prefix_cache",
                   {{"limit_bytes", info.prefix_cache_bytes},
                    {"used_bytes", stats.prefix_bytes},
                    {"snapshot_bytes", stats.largest_snapshot},
                    {"oversized_snapshots", stats.prefix_oversized},
                    {"snapshots", stats.prefix_entries}}},
                  {"media_cache",
                   {{"limit_bytes", info.media_cache_bytes},
                    {"used_bytes", stats.media_bytes},
                    {"media", stats.media_entries}}},
                  {"chunk", info.chunk},
                  {"embedding", "mean"}};
  call.SendJson({{"total_slots", info.slots},
                 {"modalities", ModalitiesOf(info)},
                 {"default_generation_settings", {{"n_ctx", info.capacity}, {"params", params}}},
                 {"rullama", std::move(rullama)}});
}

void MetricsText(const Services& services, Call& call) {
  const std::vector<ModelState> models = services.models.All();
  Gauges gauges{.engine = services.models.stats(),
                .version = services.options.version,
                .backend = models.front().model.info.backend};
  for (const ModelState& state : models) {
    if (!state.loaded) continue;
    const ModelInfo& info = state.model.info;
    ++gauges.models_loaded;
    gauges.kv_capacity += info.capacity * info.slots;
    gauges.device_memory_bytes += info.file_bytes;
  }
  if (services.options.connections) gauges.connections = services.options.connections();
  call.Send({.status = 200,
             .content_type = "text/plain; version=0.0.4; charset=utf-8",
             .body = services.metrics.Text(gauges),
             .fields = {}});
}

void Tokenize(const Services& services, Call& call) {
  const auto body = ParseBody(call.request().body);
  if (!body) return call.Fail(body.error());
  FieldReader fields(*body);
  const auto text = fields.Text("content");
  const bool add_bos = fields.Boolean("add_special").value_or(false);
  const bool parse_special = fields.Boolean("parse_special").value_or(true);
  const bool pieces = fields.Boolean("with_pieces").value_or(false);
  if (!text) fields.Fail("missing_required_parameter", "content", "is missing; give a text");
  fields.Find("model");
  if (fields.error()) return call.Fail(*fields.error());
  const auto context = ContextOf(services, call, *body);
  if (!context) return call.Fail(context.error());
  const Engine& engine = *context->model.engine;
  const int64_t most = LongestContext(engine);
  const auto ids = engine.Tokenize(*text, parse_special, add_bos, most);
  if (!ids && ids.error().id == "text.size") return call.Fail(TooManyTokens(most, "content"));
  if (!ids) return call.Fail(FromEngine(ids.error()));
  json tokens = json::array();
  for (const int32_t id : *ids) tokens.push_back(pieces ? PieceOf(engine, id) : json(id));
  call.SendJson({{"tokens", std::move(tokens)}}, fields.Unknown());
}

void Detokenize(const Services& services, Call& call) {
  const auto body = ParseBody(call.request().body);
  if (!body) return call.Fail(body.error());
  FieldReader fields(*body);
  std::vector<int32_t> ids;
  const json* tokens = fields.Find("tokens");
  if (tokens == nullptr) {
    fields.Fail("missing_required_parameter", "tokens", "is missing; give a list of token ids");
  } else if (!tokens->is_array()) {
    fields.Fail("invalid_type", "tokens", "is not a list of token ids");
  } else if (!tokens->empty()) {
    ids = ReadIds(fields, "tokens", *tokens);
  }
  fields.Find("model");
  if (fields.error()) return call.Fail(*fields.error());
  const auto context = ContextOf(services, call, *body);
  if (!context) return call.Fail(context.error());
  const Engine& engine = *context->model.engine;
  const auto text = engine.Detokenize(ids, true);
  if (!text) return call.Fail(FromEngine(text.error()));
  call.SendJson({{"content", *text}}, fields.Unknown());
}

void ApplyTemplate(const Services& services, Call& call) {
  const auto body = ParseBody(call.request().body);
  if (!body) return call.Fail(body.error());
  const auto context = ContextOf(services, call, *body);
  if (!context) return call.Fail(context.error());
  const auto request = ReadChatRequest(*body, context->body);
  if (!request) return call.Fail(request.error());
  const Request& prompt = request->prompts.front();
  const Engine& engine = *context->model.engine;
  const int64_t most = LongestContext(engine);
  const auto ids =
      engine.ChatTokens(prompt.messages, prompt.tools, prompt.thinking.value_or(false), most);
  if (!ids && ids.error().id == "text.size") return call.Fail(TooManyTokens(most, "messages"));
  if (!ids) return call.Fail(FromEngine(ids.error()));
  const auto text = engine.Detokenize(*ids, true);
  if (!text) return call.Fail(FromEngine(text.error()));
  call.SendJson({{"prompt", *text}}, request->ignored);
}

}  // namespace rullama::server
