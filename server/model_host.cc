#include "server/model_host.h"

#include <fmt/format.h>

#include <utility>

#include "core/base/printable.h"

namespace rullama::server {
namespace {

std::string_view WithoutLatest(std::string_view name) {
  constexpr std::string_view kLatest = ":latest";
  if (name.ends_with(kLatest)) name.remove_suffix(kLatest.size());
  return name;
}

}  // namespace

ModelHost::ModelHost(ServedModel model, std::shared_ptr<Engine> engine, Loader loader,
                     Metrics& metrics)
    : model_(std::move(model)),
      info_(engine->info()),
      loader_(std::move(loader)),
      metrics_(metrics),
      engine_(std::move(engine)) {
  metrics_.Add(Counter::kModelLoads, 1, R"(result="ok")");
}

std::shared_ptr<Engine> ModelHost::loaded() const {
  const std::lock_guard lock(mutex_);
  return engine_;
}

ApiResult<std::shared_ptr<Engine>> ModelHost::Acquire() {
  if (auto engine = loaded()) return engine;
  const std::lock_guard loading(loading_);
  if (auto engine = loaded()) return engine;
  auto engine = loader_();
  metrics_.Add(Counter::kModelLoads, 1, engine ? R"(result="ok")" : R"(result="error")");
  if (!engine) return tl::unexpected(FromEngine(engine.error()));
  const std::lock_guard lock(mutex_);
  engine_ = *std::move(engine);
  return engine_;
}

void ModelHost::Unload() {
  std::shared_ptr<Engine> engine;
  {
    const std::lock_guard lock(mutex_);
    engine.swap(engine_);
  }
  // Here the model is closed, unless requests use it.
}

ApiResult<void> ModelHost::CheckName(std::string_view name) const {
  if (name.empty() || WithoutLatest(name) == WithoutLatest(model_.id)) return {};
  return tl::unexpected(MakeApiError("model_not_found",
                                     fmt::format("there is no model '{}'; this server has '{}'",
                                                 ShownName(name.substr(0, 64)), model_.id),
                                     "model"));
}

}  // namespace rullama::server
