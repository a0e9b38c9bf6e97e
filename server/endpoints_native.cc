#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "server/chat_page.h"
#include "server/endpoints.h"
#include "server/web_folder.h"

namespace rullama::server {
namespace {

using nlohmann::json;

// What clients of an embedding model ask about.
json EncoderProps(const ModelInfo& info) {
  json prompts = json::object();
  for (const TaskPrompt& prompt : info.embedding_prompts) prompts[prompt.name] = prompt.text;
  return {{"pooling", "mean"},
          {"dimensions", info.embedding_width},
          {"dense", info.dense},
          {"prompts", std::move(prompts)}};
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

void WebPage(const Services& services, Call& call) {
  constexpr std::string_view kFolder = "/web";
  const std::string_view name = std::string_view(call.request().path).substr(kFolder.size());
  if (name.empty()) {
    call.Send({.status = 302,
               .content_type = "text/plain; charset=utf-8",
               .body = {},
               .fields = {{"Location", "/web/index.html"}}});
    return;
  }
  auto file = services.options.web_folder->Answer(name.substr(1), call.request().if_none_match);
  if (file) {
    call.Send(*std::move(file));
  } else {
    call.Fail(MakeApiError("route_not_found", "the page has no such file"));
  }
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
  json aliases = json::array();
  for (const ModelAlias& alias : services.options.aliases) {
    aliases.push_back({{"name", alias.name}, {"model", alias.model}});
  }
  json rullama = {{"version", services.options.version},
                  {"backend", info.backend},
                  {"device", info.device},
                  {"deterministic", info.deterministic},
                  {"models", std::move(entries)},
                  {"aliases", std::move(aliases)},
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
                  {"slot_cache", {{"bytes", info.slot_bytes}, {"type", info.cache_type}}},
                  {"chunk", info.chunk},
                  {"embedding", "mean"}};
  if (services.options.snapshots) {
    const SnapshotStoreStats disk = services.options.snapshots->stats();
    rullama["prefix_cache"]["disk"] = {
        {"limit_bytes", disk.limit_bytes}, {"used_bytes", disk.bytes}, {"files", disk.files}};
  }
  if (info.encodes) rullama.update(EncoderProps(info));
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
  if (services.options.snapshots) gauges.disk = services.options.snapshots->stats();
  if (services.options.connections) gauges.connections = services.options.connections();
  call.Send({.status = 200,
             .content_type = "text/plain; version=0.0.4; charset=utf-8",
             .body = services.metrics.Text(gauges),
             .fields = {}});
}

}  // namespace rullama::server
