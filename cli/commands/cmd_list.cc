// rullama list, rullama show: the models that were downloaded, and one model in short.
#include <fmt/chrono.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands/command.h"
#include "cli/commands/downloaded_model.h"
#include "cli/commands/drafter_summary.h"
#include "cli/commands/json_text.h"
#include "cli/commands/loading.h"
#include "cli/commands/model_summary.h"
#include "cli/commands/pulling.h"
#include "core/base/size_text.h"
#include "core/ollama/list.h"
#include "downloads/hub_cache.h"

namespace rullama::cli {
namespace {

using nlohmann::json;

struct ListedModel {
  std::string name;
  std::time_t modified = 0;
  std::optional<Error> problem = {};  // why it cannot be used
  std::string path = {};
  uint64_t bytes = 0;
  std::string family = {};  // the following are labels, and may be empty
  std::string parameters = {};
  std::string type = {};
};

std::string ModifiedText(std::time_t time) {
  return fmt::format("{:%Y-%m-%d %H:%M}", fmt::localtime(time));
}

ListedModel DescribeEntry(const OllamaEntry& entry, const OllamaStoreOptions& options) {
  ListedModel listed{.name = entry.name.ToString(), .modified = entry.modified};
  auto model = ResolveOllamaModel(listed.name, options);
  if (!model) {
    listed.problem = std::move(model).error();
    return listed;
  }
  std::error_code failure;
  const uintmax_t bytes = std::filesystem::file_size(model->model, failure);
  listed.bytes = failure ? 0 : bytes;
  listed.path = model->model.string();
  listed.family = model->model_family;
  listed.parameters = model->model_type;
  listed.type = model->file_type;
  return listed;
}

ListedModel DescribeHubModel(const downloads::CachedHubModel& model) {
  return {.name = model.name.ToString(),
          .modified = model.modified,
          .path = model.model.string(),
          .bytes = model.bytes,
          .type = model.name.quant};
}

json AsJson(const ListedModel& listed) {
  json record = {{"name", listed.name}, {"modified", ModifiedText(listed.modified)}};
  if (listed.problem) {
    record["error"] = {{"code", listed.problem->id}, {"message", listed.problem->message}};
    return record;
  }
  record["bytes"] = listed.bytes;
  record["family"] = listed.family;
  record["parameters"] = listed.parameters;
  record["type"] = listed.type;
  record["path"] = listed.path;
  return record;
}

// Labels come from JSON files of the network.
std::string Label(std::string text) {
  std::erase_if(text, [](unsigned char c) { return c < 0x20 || c >= 0x7F; });
  return text.empty() ? "-" : text.substr(0, 16);
}

std::string TableOf(const std::vector<ListedModel>& models) {
  size_t width = std::string_view("NAME").size();
  for (const ListedModel& listed : models) width = std::max(width, listed.name.size());
  std::string text = fmt::format("{:<{}}  {:>10}  {:<16}  {:<10}  {:<10}  {}\n", "NAME", width,
                                 "SIZE", "MODIFIED", "FAMILY", "PARAMETERS", "TYPE");
  for (const ListedModel& listed : models) {
    const std::string modified = ModifiedText(listed.modified);
    if (listed.problem) {
      text += fmt::format("{:<{}}  {:>10}  {:<16}  cannot be used [{}]\n", listed.name, width, "-",
                          modified, listed.problem->id);
      continue;
    }
    text += fmt::format("{:<{}}  {:>10}  {:<16}  {:<10}  {:<10}  {}\n", listed.name, width,
                        SizeText(listed.bytes), modified, Label(listed.family),
                        Label(listed.parameters), Label(listed.type));
  }
  return text;
}

// Says where models are looked for.
void NoteNoModels(const OllamaStoreOptions& options, const downloads::HubPlaces& places,
                  Console& console) {
  std::vector<std::string> roots;
  roots.reserve(options.roots.size());
  for (const auto& root : options.roots) roots.push_back("'" + root.string() + "'");
  console.Note(
      fmt::format("there is no model in {} or '{}'; get one with 'rullama pull gemma4:e2b', set "
                  "OLLAMA_MODELS or HF_HUB_CACHE to a store, or give a GGUF file to 'rullama run'",
                  fmt::join(roots, ", "), places.cache.string()));
}

Result<int> ListModels(bool as_json, Console& console) {
  const OllamaStoreOptions options = OllamaStoreOptions::FromEnvironment();
  const downloads::HubPlaces places = ProcessHubPlaces();
  RL_ASSIGN_OR_RETURN(const auto entries, ListOllamaModels(options));
  std::vector<ListedModel> models;
  models.reserve(entries.size());
  for (const OllamaEntry& entry : entries) models.push_back(DescribeEntry(entry, options));
  for (const auto& cached : downloads::ListHubCache(places)) {
    models.push_back(DescribeHubModel(cached));
  }
  std::ranges::stable_sort(models, std::ranges::greater(), &ListedModel::modified);
  if (as_json) {
    for (const ListedModel& listed : models) {
      RL_RETURN_IF_ERROR(console.Write(JsonLine(AsJson(listed))));
    }
    return 0;
  }
  if (!models.empty()) RL_RETURN_IF_ERROR(console.Write(TableOf(models)));
  for (const ListedModel& listed : models) {
    if (!listed.problem) continue;
    console.Warn(fmt::format("'{}': {}", listed.name, listed.problem->ToString()));
  }
  if (models.empty()) NoteNoModels(options, places, console);
  return 0;
}

struct ShowFlags {
  NamedModel model;
  ConfigFlags config;
};

Result<int> ShowModel(const ShowFlags& flags, Console& console) {
  RL_ASSIGN_OR_RETURN(const downloads::ModelPaths paths, FindNamedModel(flags.model, console));
  RL_ASSIGN_OR_RETURN(const ModelFile model, OpenModelFile(paths.model.string()));
  RL_ASSIGN_OR_RETURN(const ModelSummary summary, SummarizeOnBackend(model, flags.config, console));
  const std::string drafter = DrafterText(DrafterAsJson(model, ""));
  RL_RETURN_IF_ERROR(
      console.Write(SummaryText(summary) + (drafter.empty() ? "" : "drafter        " + drafter)));
  return 0;
}

}  // namespace

void AddListCommands(CLI::App& app, CommandContext& context) {
  const auto as_json = std::make_shared<bool>(false);
  CLI::App* list = app.add_subcommand("list", "List the models that were downloaded");
  list->alias("ls");
  list->add_flag("--json", *as_json, "One JSON object per model and line");
  list->footer("Example:\n  rullama list\n  OLLAMA_MODELS=/data/models rullama list --json");
  list->callback([as_json, &context] {
    context.action = [as_json, &context] { return ListModels(*as_json, context.console); };
  });

  const auto flags = std::make_shared<ShowFlags>();
  CLI::App* show = app.add_subcommand("show", "Summarise a model and say whether it runs");
  AddNamedModel(*show, "MODEL,-m,--model", flags->model);
  AddBackendOptions(*show, flags->config);
  show->footer(
      "Examples:\n  rullama show gemma4:e2b\n  rullama show -hf ggml-org/gemma-3-270m-it-GGUF\n\n"
      "'rullama inspect' shows everything.");
  show->callback([flags, &context] {
    context.action = [flags, &context] { return ShowModel(*flags, context.console); };
  });
}

}  // namespace rullama::cli
