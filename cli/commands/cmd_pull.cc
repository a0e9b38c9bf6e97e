// rullama pull, rullama rm: models from a registry or from the Hugging Face Hub, into the stores
// that Ollama and huggingface_hub use as well.
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands/command.h"
#include "cli/commands/json_text.h"
#include "cli/commands/pulling.h"
#include "cli/terminal/signals.h"
#include "core/base/printable.h"
#include "core/base/size_text.h"
#include "downloads/hub_cache.h"
#include "downloads/ollama_remove.h"

namespace rullama::cli {
namespace {

constexpr const char* kHubText = "USER/REPO[:QUANT]";

struct PullFlags {
  std::optional<std::string> name;
  std::optional<std::string> hub;  // -hf
  PullSettings settings;
  bool no_mmproj = false;
  bool json = false;
  bool dry_run = false;
  bool quiet = false;
  bool verbose = false;
};

Result<RemoteName> NameToPull(const PullFlags& flags) {
  if (flags.name.has_value() == flags.hub.has_value()) {
    return MakeError(ErrorKind::kUsage, "usage.option",
                     "'pull' needs one model: a NAME, or -hf USER/REPO");
  }
  if (!flags.hub) return ParseRemoteName(*flags.name);
  RL_ASSIGN_OR_RETURN(downloads::HubName name, downloads::ParseHubName(*flags.hub));
  return RemoteName{.hub = std::move(name), .registry = {}};
}

std::string FilesText(const downloads::PullPlan& plan) {
  std::string text;
  for (const downloads::PlannedFile& file : plan.files) {
    text += fmt::format("{:>10}  {}\n", SizeText(file.bytes), ShownName(file.name));
  }
  return text;
}

Result<int> PullAndShow(const PullFlags& flags, PullView& view, Console& console) {
  RL_ASSIGN_OR_RETURN(const RemoteName name, NameToPull(flags));
  PullSettings settings = flags.settings;
  settings.choice.mmproj = !flags.no_mmproj;
  Puller puller(name, settings, ProcessPullHooks(view, flags.verbose));
  RL_ASSIGN_OR_RETURN(const downloads::PullPlan plan, puller.Plan());
  if (flags.dry_run) {
    RL_RETURN_IF_ERROR(console.Write(FilesText(plan)));
    return 0;
  }
  RL_RETURN_IF_ERROR(puller.CarryOut(plan));
  RL_RETURN_IF_ERROR(view.status());
  const std::string path = plan.paths.model.string();
  RL_RETURN_IF_ERROR(
      console.Write(flags.json ? JsonLine({{"status", "success"}, {"path", path}}) : path + "\n"));
  return 0;
}

Result<int> Pull(const PullFlags& flags, Console& console) {
  if (flags.quiet && flags.verbose) {
    return MakeError(ErrorKind::kUsage, "usage.option", "-q and -v exclude each other; give one");
  }
  if (flags.quiet) console.set_verbosity(std::min(console.verbosity(), Verbosity::kWarnings));
  PullView view(console, flags.json);
  Result<int> result = PullAndShow(flags, view, console);
  view.Finish(result ? nullptr : &result.error());
  return result;
}

struct RemoveFlags {
  std::vector<std::string> names;
  std::vector<std::string> hub;  // -hf
};

Status Remove(const RemoteName& name, const downloads::PullHooks& hooks) {
  if (name.hub) return downloads::RemoveFromHubCache(*name.hub, ProcessHubPlaces(), hooks);
  return downloads::RemoveFromOllamaStore(*name.registry, WritableOllamaStore(), hooks);
}

Result<int> RemoveModels(const RemoveFlags& flags, Console& console) {
  std::vector<RemoteName> names;
  for (const std::string& text : flags.names) {
    RL_ASSIGN_OR_RETURN(RemoteName name, ParseRemoteName(text));
    names.push_back(std::move(name));
  }
  for (const std::string& text : flags.hub) {
    RL_ASSIGN_OR_RETURN(downloads::HubName name, downloads::ParseHubName(text));
    names.push_back({.hub = std::move(name), .registry = {}});
  }
  if (names.empty()) {
    return MakeError(ErrorKind::kUsage, "usage.option",
                     "'rm' needs a model: a NAME, or -hf USER/REPO");
  }
  PullView view(console, /*json=*/false);
  const downloads::PullHooks hooks = ProcessPullHooks(view, /*verbose=*/false);
  for (const RemoteName& name : names) RL_RETURN_IF_ERROR(Remove(name, hooks));
  return 0;
}

void AddTransferOptions(CLI::App& command, PullFlags& flags) {
  downloads::PullOptions& options = flags.settings.options;
  command
      .add_option("--connections", options.connections, "Connections for a large file [default 4]")
      ->check(CLI::Range(1, 16))
      ->option_text("N")
      ->group("Transfer");
  command.add_option("--retries", options.retries, "Tries without progress [default 5]")
      ->check(CLI::Range(0, 20))
      ->option_text("N")
      ->group("Transfer");
  command
      .add_option("--stall", options.stall_seconds,
                  "Seconds without a byte before another try [default 30]")
      ->check(CLI::Range(1, 3600))
      ->option_text("SECONDS")
      ->group("Transfer");
  command
      .add_flag("--insecure", options.insecure,
                "Allow plain http to other machines; never with a token")
      ->group("Transfer");
}

void AddChoiceOptions(CLI::App& command, PullFlags& flags) {
  constexpr const char* kGroup = "Choice (Hugging Face Hub)";
  command.add_option("--revision", flags.settings.revision, "Branch, tag or commit [default main]")
      ->option_text("REV")
      ->group(kGroup);
  command.add_option("--file", flags.settings.choice.file, "The file of the model, by its path")
      ->option_text("PATH")
      ->group(kGroup);
  command.add_flag("--no-mmproj", flags.no_mmproj, "Without the towers for pictures and sound")
      ->group(kGroup);
  command.add_flag("--mtp", flags.settings.choice.mtp, "With the draft model (mtp-*.gguf)")
      ->group(kGroup);
}

constexpr const char* kPullFooter = R"(Examples:
  rullama pull gemma4:e2b
  rullama pull -hf ggml-org/gemma-3-270m-it-GGUF:Q8_0
  rullama pull hf.co/ggml-org/gemma-3-270m-it-GGUF --dry-run

stdout has the path of the model file. Names without hf.co/ are those of Ollama's registry, or
HOST/NAMESPACE/MODEL:TAG of another one, and go to its store (OLLAMA_MODELS). Models of the Hub go
to the cache of huggingface_hub (HF_HUB_CACHE, HF_HOME), from HF_ENDPOINT, with the token in
HF_TOKEN; HF_HUB_OFFLINE keeps to the cache. Proxies are those of https_proxy and no_proxy.
Interrupted downloads continue when the same command runs again. docs/downloads.md says more.)";

void AddPullCommand(CLI::App& app, CommandContext& context) {
  const auto flags = std::make_shared<PullFlags>();
  CLI::App* command = app.add_subcommand("pull", "Download a model");
  command->add_option("NAME", flags->name, "The model: gemma4:e2b, or hf.co/USER/REPO[:QUANT]")
      ->option_text(" ");
  command->add_option("--hf-repo", flags->hub, "Also -hf. The model on the Hugging Face Hub")
      ->option_text(kHubText);
  command->add_flag("--dry-run", flags->dry_run, "Show names and sizes, and download nothing");
  command->add_flag("--json", flags->json, "One JSON object per line: downloading, success");
  command->add_flag("-v,--verbose", flags->verbose, "Show the requests");
  command->add_flag("-q,--quiet", flags->quiet, "No progress, only errors");
  AddChoiceOptions(*command, *flags);
  AddTransferOptions(*command, *flags);
  command->footer(kPullFooter);
  command->callback([flags, &context] {
    context.action = [flags, &context] { return Pull(*flags, context.console); };
  });
}

}  // namespace

void AddPullCommands(CLI::App& app, CommandContext& context) {
  AddPullCommand(app, context);
  const auto flags = std::make_shared<RemoveFlags>();
  CLI::App* command = app.add_subcommand("rm", "Remove models that were downloaded");
  command->add_option("NAME", flags->names, "Models as 'rullama list' names them")
      ->option_text("...");
  command->add_option("--hf-repo", flags->hub, "Also -hf. A model of the Hugging Face Hub")
      ->option_text(kHubText)
      ->allow_extra_args(false);
  command->footer(
      "Examples:\n  rullama rm gemma4:e2b\n  rullama rm -hf ggml-org/gemma-3-270m-it-GGUF:Q8_0\n\n"
      "What other models need stays. Ollama and huggingface_hub lose the model too.");
  command->callback([flags, &context] {
    context.action = [flags, &context] { return RemoveModels(*flags, context.console); };
  });
}

}  // namespace rullama::cli
