// rullama list, rullama show: the models of the Ollama store, and one model in short.
#include <fmt/chrono.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/commands/command.h"
#include "cli/commands/drafter_summary.h"
#include "cli/commands/json_text.h"
#include "cli/commands/loading.h"
#include "cli/commands/model_summary.h"
#include "core/base/size_text.h"
#include "core/ollama/list.h"

namespace rullama::cli {
namespace {

using nlohmann::json;

struct ListedModel {
  std::string name;
  std::string modified;
  std::optional<OllamaModel> model;  // or why it cannot be used
  std::optional<Error> problem;
  uint64_t bytes = 0;
};

ListedModel DescribeEntry(const OllamaEntry& entry, const OllamaStoreOptions& options) {
  ListedModel listed;
  listed.name = entry.name.ToString();
  listed.modified = fmt::format("{:%Y-%m-%d %H:%M}", fmt::localtime(entry.modified));
  auto model = ResolveOllamaModel(listed.name, options);
  if (!model) {
    listed.problem = std::move(model).error();
    return listed;
  }
  std::error_code failure;
  const uintmax_t bytes = std::filesystem::file_size(model->model, failure);
  listed.bytes = failure ? 0 : bytes;
  listed.model = *std::move(model);
  return listed;
}

json AsJson(const ListedModel& listed) {
  json record = {{"name", listed.name}, {"modified", listed.modified}};
  if (listed.problem) {
    record["error"] = {{"code", listed.problem->id}, {"message", listed.problem->message}};
    return record;
  }
  record["bytes"] = listed.bytes;
  record["family"] = listed.model->model_family;
  record["parameters"] = listed.model->model_type;
  record["type"] = listed.model->file_type;
  record["path"] = listed.model->model.string();
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
    if (listed.problem) {
      text += fmt::format("{:<{}}  {:>10}  {:<16}  cannot be used [{}]\n", listed.name, width, "-",
                          listed.modified, listed.problem->id);
      continue;
    }
    text += fmt::format("{:<{}}  {:>10}  {:<16}  {:<10}  {:<10}  {}\n", listed.name, width,
                        SizeText(listed.bytes), listed.modified, Label(listed.model->model_family),
                        Label(listed.model->model_type), Label(listed.model->file_type));
  }
  return text;
}

Result<int> ListModels(bool as_json, Console& console) {
  const OllamaStoreOptions options = OllamaStoreOptions::FromEnvironment();
  RL_ASSIGN_OR_RETURN(const auto entries, ListOllamaModels(options));
  std::vector<ListedModel> models;
  models.reserve(entries.size());
  for (const OllamaEntry& entry : entries) models.push_back(DescribeEntry(entry, options));
  if (as_json) {
    for (const ListedModel& listed : models) {
      RL_RETURN_IF_ERROR(console.Write(JsonLine(AsJson(listed))));
    }
    return 0;
  }
  if (!models.empty()) RL_RETURN_IF_ERROR(console.Write(TableOf(models)));
  for (const ListedModel& listed : models) {
    if (listed.problem)
      console.Warn(fmt::format("'{}': {}", listed.name, listed.problem->ToString()));
  }
  if (models.empty()) {
    std::vector<std::string> roots;
    roots.reserve(options.roots.size());
    for (const auto& root : options.roots) roots.push_back("'" + root.string() + "'");
    console.Note(
        fmt::format("there is no model in {}; get one with 'ollama pull gemma4:e2b', set "
                    "OLLAMA_MODELS to the store, or give a GGUF file to 'rullama run'",
                    fmt::join(roots, ", ")));
  }
  return 0;
}

struct ShowFlags {
  std::string name;
  ConfigFlags config;
};

Result<int> ShowModel(const ShowFlags& flags, Console& console) {
  RL_ASSIGN_OR_RETURN(const ModelFile model, OpenModelFile(flags.name));
  RL_ASSIGN_OR_RETURN(const ModelSummary summary, SummarizeOnBackend(model, flags.config, console));
  const std::string drafter = DrafterText(DrafterAsJson(model, ""));
  RL_RETURN_IF_ERROR(
      console.Write(SummaryText(summary) + (drafter.empty() ? "" : "drafter        " + drafter)));
  return 0;
}

}  // namespace

void AddListCommands(CLI::App& app, CommandContext& context) {
  const auto as_json = std::make_shared<bool>(false);
  CLI::App* list = app.add_subcommand("list", "List the models that Ollama has downloaded");
  list->alias("ls");
  list->add_flag("--json", *as_json, "One JSON object per model and line");
  list->footer("Example:\n  rullama list\n  OLLAMA_MODELS=/data/models rullama list --json");
  list->callback([as_json, &context] {
    context.action = [as_json, &context] { return ListModels(*as_json, context.console); };
  });

  const auto flags = std::make_shared<ShowFlags>();
  CLI::App* show = app.add_subcommand("show", "Summarise a model and say whether it runs");
  show->add_option("MODEL,-m,--model", flags->name, "GGUF file or Ollama name")
      ->required()
      ->option_text("FILE|NAME");
  AddBackendOptions(*show, flags->config);
  show->footer("Example:\n  rullama show gemma4:e2b\n\n'rullama inspect' shows everything.");
  show->callback([flags, &context] {
    context.action = [flags, &context] { return ShowModel(*flags, context.console); };
  });
}

}  // namespace rullama::cli
