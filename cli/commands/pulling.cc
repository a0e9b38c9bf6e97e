#include "cli/commands/pulling.h"

#include <cstdlib>
#include <utility>

#include "cli/terminal/signals.h"
#include "core/ollama/store.h"
#include "downloads/hub_cache.h"
#include "downloads/ollama_registry.h"
#include "downloads/pull.h"

namespace rullama::cli {
namespace {

const char* EnvironmentValue(const char* name) { return std::getenv(name); }

// The model in the cache, as a plan without anything to do.
Result<downloads::PullPlan> PlanOffline(const downloads::HubName& name,
                                        const PullSettings& settings,
                                        const downloads::HubPlaces& places) {
  downloads::HubChoice choice = settings.choice;
  if (choice.quant.empty()) choice.quant = name.quant;
  auto paths = downloads::FindInHubCache(name, settings.revision, choice, places);
  if (paths) return downloads::PullPlan{.root = places.cache, .paths = *std::move(paths)};
  return MakeError(ErrorKind::kIo, "pull.offline",
                   "'{}' is not in '{}', and HF_HUB_OFFLINE is set; unset it to download the model",
                   name.repo, places.cache.string());
}

}  // namespace

Result<RemoteName> ParseRemoteName(std::string_view text) {
  if (const auto hub = downloads::AfterHubHost(text)) {
    RL_ASSIGN_OR_RETURN(downloads::HubName name, downloads::ParseHubName(*hub));
    return RemoteName{.hub = std::move(name), .registry = {}};
  }
  RL_ASSIGN_OR_RETURN(OllamaName name, downloads::ParseRegistryName(text));
  return RemoteName{.hub = {}, .registry = std::move(name)};
}

downloads::HubPlaces ProcessHubPlaces() {
  return downloads::HubPlaces::FromEnvironment(EnvironmentValue);
}

std::filesystem::path WritableOllamaStore() {
  return OllamaStoreOptions::FromEnvironment().roots.front();
}

downloads::PullHooks ProcessPullHooks(PullView& view, bool verbose) {
  downloads::PullHooks hooks{
      .cancelled = [flag = CancelFlag()] { return flag->load(); },
      .on_progress = [&view](const downloads::PlannedFile& file,
                             uint64_t completed) { view.Show(file, completed); },
      .note = [&view](const std::string& text) { view.Note(text); }};
  if (verbose) hooks.trace = hooks.note;
  return hooks;
}

Puller::Puller(const RemoteName& name, PullSettings settings, downloads::PullHooks hooks)
    : name_(name),
      settings_(std::move(settings)),
      hooks_(std::move(hooks)),
      client_({.user_agent = "rullama/" RULLAMA_VERSION " (linux x86_64)",
               .stall_seconds = settings_.options.stall_seconds,
               .insecure = settings_.options.insecure,
               .getenv = EnvironmentValue,
               .trace = hooks_.trace}),
      connection_{client_, settings_.options, hooks_} {}

Result<downloads::PullPlan> Puller::Plan() {
  if (name_.registry) {
    return downloads::PlanOllamaPull(*name_.registry, WritableOllamaStore(), connection_);
  }
  const downloads::HubPlaces places = ProcessHubPlaces();
  if (places.offline) return PlanOffline(*name_.hub, settings_, places);
  downloads::HubChoice choice = settings_.choice;
  if (choice.quant.empty()) choice.quant = name_.hub->quant;
  return downloads::PlanHubPull(*name_.hub, settings_.revision, choice, places, connection_);
}

Status Puller::CarryOut(const downloads::PullPlan& plan) {
  return downloads::CarryOut(plan, connection_);
}

}  // namespace rullama::cli
