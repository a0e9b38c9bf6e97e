#include "cli/commands/downloaded_model.h"

#include <poll.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "cli/commands/pulling.h"
#include "cli/terminal/signals.h"
#include "core/base/printable.h"
#include "core/config/value_codec.h"
#include "core/ollama/store.h"
#include "downloads/hub_cache.h"

namespace rullama::cli {
namespace {

constexpr const char* kModelPath = "model.path";
constexpr const char* kTowersPath = "model.mmproj";

// Downloads a model and returns its files.
Result<downloads::ModelPaths> PullNow(const RemoteName& name, Console& console) {
  PullView view(console, /*json=*/false);
  Puller puller(name, {}, ProcessPullHooks(view, /*verbose=*/false));
  const Result<downloads::PullPlan> plan = puller.Plan();
  const Status pulled = plan ? puller.CarryOut(*plan) : tl::unexpected(plan.error());
  view.Finish(pulled ? nullptr : &pulled.error());
  if (!pulled) return tl::unexpected(pulled.error());
  return plan->paths;
}

std::optional<downloads::ModelPaths> FindCached(const downloads::HubName& name) {
  return downloads::FindInHubCache(name, downloads::kMainRevision, {.quant = name.quant},
                                   ProcessHubPlaces());
}

// The files of the model of -hf, which is downloaded if it is not in the cache.
Result<downloads::ModelPaths> PathsOfHubModel(const std::string& text, Console& console) {
  RL_ASSIGN_OR_RETURN(const downloads::HubName name, downloads::ParseHubName(text));
  if (auto paths = FindCached(name)) return *std::move(paths);
  return PullNow({.hub = name, .registry = {}}, console);
}

tl::unexpected<Error> TwoModels() {
  return MakeError(ErrorKind::kUsage, "usage.option",
                   "-m and -hf each name a model; leave one of them out");
}

bool IsInOllamaStore(const std::string& name) {
  const auto found = ResolveOllamaModel(name, OllamaStoreOptions::FromEnvironment());
  // A model that is there and damaged is not to be hidden by another.
  return found || found.error().id != "store.not_found";
}

// The line that the user types; empty at the end of the input and after Ctrl-C.
std::string ReadAnswer() {
  pollfd typed{STDIN_FILENO, POLLIN, 0};
  while (!CancelFlag()->load() && ::poll(&typed, 1, 100) <= 0) {
  }
  if (CancelFlag()->load()) return {};
  std::array<char, 256> buffer;
  const ssize_t count = ::read(STDIN_FILENO, buffer.data(), buffer.size());
  std::string answer(buffer.data(), count > 0 ? static_cast<size_t>(count) : 0);
  while (!answer.empty() && (answer.back() == '\n' || answer.back() == ' ')) answer.pop_back();
  return count > 0 ? answer + "\n" : std::string();
}

bool AsksForIt(const std::string& name, Console& console) {
  console.WriteError(
      fmt::format("rullama: '{}' is not on this machine. Download it? [Y/n] ", ShownName(name)));
  const std::string answer = ReadAnswer();
  constexpr std::array<std::string_view, 5> kYes = {"\n", "y\n", "Y\n", "yes\n", "Yes\n"};
  if (answer.empty()) console.WriteError("\n");
  return std::ranges::find(kYes, answer) != kYes.end();
}

}  // namespace

Status ApplyHubModel(const ConfigFlags& flags, LayeredConfig& config) {
  if (!flags.hub) return OkStatus();
  if (config.origin(kModelPath) == Origin::kFlag) {
    return TwoModels();
  }
  Console console;
  if (flags.quiet) console.set_verbosity(Verbosity::kWarnings);
  RL_ASSIGN_OR_RETURN(const downloads::ModelPaths paths, PathsOfHubModel(*flags.hub, console));
  RL_RETURN_IF_ERROR(config.Set(kModelPath, paths.model.string(), Origin::kFlag, "-hf"));
  const bool towers =
      flags.takes_towers && paths.projector && config.origin(kTowersPath) == Origin::kDefault;
  if (!towers) return OkStatus();
  return config.Set(kTowersPath, paths.projector->string(), Origin::kFlag, "-hf");
}

void AddNamedModel(CLI::App& app, const std::string& names, NamedModel& model) {
  app.add_option(names, model.name, "GGUF file, or a name: gemma4:e2b, hf.co/USER/REPO")
      ->option_text("FILE|NAME");
  AddHubOption(app, model.hub);
  app.add_flag("--pull", model.pull, "Download the model without asking if it is not here");
}

Result<downloads::ModelPaths> FindNamedModel(const NamedModel& model, Console& console) {
  if (model.hub && !model.name.empty()) return TwoModels();
  if (model.hub) return PathsOfHubModel(*model.hub, console);
  if (model.name.empty()) {
    return MakeError(ErrorKind::kUsage, "usage.model",
                     "no model is named; give a file, a name or -hf USER/REPO");
  }
  RL_RETURN_IF_ERROR(OfferToPull(model.name, model.pull, console));
  return downloads::ModelPaths{.model = model.name};
}

std::optional<std::string> CachedHubFile(const std::string& name) {
  const auto after = downloads::AfterHubHost(name);
  if (!after || IsInOllamaStore(name)) return std::nullopt;
  const auto hub = downloads::ParseHubName(*after);
  const auto paths = hub ? FindCached(*hub) : std::nullopt;
  if (!paths) return std::nullopt;
  return paths->model.string();
}

Status OfferToPull(const std::string& name, bool pull, Console& console) {
  std::error_code ignored;
  if (LooksLikeModelFile(name) || std::filesystem::exists(name, ignored)) return OkStatus();
  const auto remote = ParseRemoteName(name);
  if (!remote || IsInOllamaStore(name) || CachedHubFile(name)) return OkStatus();
  const bool asks = StdinIsTerminal() && console.stderr_is_terminal();
  const bool wanted = pull || (asks && AsksForIt(name, console));
  if (CancelFlag()->load()) {
    return MakeError(ErrorKind::kRuntime, "run.cancelled", "the question was not answered");
  }
  if (!wanted) return OkStatus();
  RL_ASSIGN_OR_RETURN([[maybe_unused]] const auto paths, PullNow(*remote, console));
  return OkStatus();
}

}  // namespace rullama::cli
