// rullama eval: several models on the same texts and tasks, as one table.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/bench/score.h"
#include "cli/commands/command.h"
#include "cli/commands/json_text.h"
#include "cli/commands/loading.h"
#include "cli/commands/options.h"
#include "cli/commands/text_limits.h"
#include "cli/eval/reports.h"
#include "cli/eval/text_chunks.h"

namespace rullama::cli {
namespace {

using nlohmann::json;

struct EvalFlags {
  ConfigFlags config;
  std::vector<std::string> models;
  std::string text;
  std::string log_probs;  // of the first model; empty: no comparison
  std::string hella_swag;
  std::string multiple_choice;
  size_t tasks = 0;  // of each of the two; 0: all
  bool json = false;
};

// The results of one model.
struct EvalRow {
  std::string model;
  std::optional<double> perplexity = {};
  std::optional<DivergenceReport> divergence = {};  // from the first model
  std::optional<ChoiceScore> hella_swag = {};
  std::optional<ChoiceScore> multiple_choice = {};
};

Status CheckEvalFlags(const EvalFlags& flags) {
  if (flags.models.empty()) {
    return MakeError(ErrorKind::kUsage, "usage.model", "no model is named, expected -m MODEL");
  }
  if (flags.text.empty() && flags.hella_swag.empty() && flags.multiple_choice.empty()) {
    return MakeError(ErrorKind::kUsage, "usage.option",
                     "nothing is to be measured; give --file, --hellaswag or --multiple-choice");
  }
  if (!flags.log_probs.empty() && flags.text.empty()) {
    return MakeError(ErrorKind::kUsage, "usage.option",
                     "--kl-divergence-base needs the text that models are compared on: -f FILE");
  }
  if (!flags.log_probs.empty() && flags.models.size() == 1) {
    return MakeError(ErrorKind::kUsage, "usage.option",
                     "--kl-divergence-base compares models with the first one, and only one is "
                     "named; name others (-m), or write the file with `rullama perplexity`");
  }
  if (!flags.log_probs.empty() && std::filesystem::exists(flags.log_probs)) {
    return MakeError(ErrorKind::kUsage, "usage.option",
                     "'{}' exists, and the log-probabilities of the first model would replace it; "
                     "remove it, or name another file",
                     flags.log_probs);
  }
  return OkStatus();
}

struct EvalInput {
  std::string text;
  std::vector<ChoiceTask> hella_swag;
  std::vector<ChoiceTask> multiple_choice;
};

// Everything is read before a model is opened.
Result<EvalInput> ReadInput(const EvalFlags& flags) {
  EvalInput input;
  if (!flags.text.empty()) {
    RL_ASSIGN_OR_RETURN(input.text, ReadTextFile(flags.text, kMaxTextBytes));
  }
  if (!flags.hella_swag.empty()) {
    RL_ASSIGN_OR_RETURN(input.hella_swag, ReadChoiceTasks(flags.hella_swag, "", flags.tasks));
  }
  if (!flags.multiple_choice.empty()) {
    RL_ASSIGN_OR_RETURN(input.multiple_choice,
                        ReadChoiceTasks("", flags.multiple_choice, flags.tasks));
  }
  return input;
}

// The perplexity, and with a file of log-probabilities how far the model is from the first one,
// which writes it.
Status MeasureEvalText(const EvalFlags& flags, const std::string& text, bool first,
                       ModelSession& model, Console& console, EvalRow& row) {
  if (!flags.log_probs.empty() && !first) {
    RL_ASSIGN_OR_RETURN(row.divergence, CompareWith(model, flags.log_probs, console));
    row.perplexity = std::exp(row.divergence->nll.value);
    return OkStatus();
  }
  RL_ASSIGN_OR_RETURN(const TextChunks chunks, ChunksOf(model, text, /*second_half=*/true));
  RL_ASSIGN_OR_RETURN(const TextScore score,
                      flags.log_probs.empty()
                          ? ScoreChunks(model, chunks, console)
                          : WriteLogProbs(model, chunks, flags.log_probs, console));
  row.perplexity = std::exp(score.mean());
  return OkStatus();
}

Result<EvalRow> MeasureModel(const EvalFlags& flags, const EvalInput& input, size_t index,
                             Console& console) {
  ConfigFlags config = flags.config;
  config.settings.push_back({"model.path", flags.models[index], "--model"});
  RL_ASSIGN_OR_RETURN(const LoadedConfig loaded, LoadConfig(config));
  if (loaded.config.origin("context.capacity") != Origin::kFlag) {
    config.settings.push_back({"context.capacity", fmt::format("{}", kDefaultChunkTokens), "eval"});
  }
  RL_ASSIGN_OR_RETURN(const auto model, OpenScoringSession(config, 0, console));
  EvalRow row{.model = std::filesystem::path(flags.models[index]).filename().string()};
  if (!flags.text.empty()) {
    RL_RETURN_IF_ERROR(MeasureEvalText(flags, input.text, index == 0, *model, console, row));
  }
  if (!input.hella_swag.empty()) {
    RL_ASSIGN_OR_RETURN(row.hella_swag, ScoreChoices(*model, input.hella_swag, console));
  }
  if (!input.multiple_choice.empty()) {
    RL_ASSIGN_OR_RETURN(row.multiple_choice, ScoreChoices(*model, input.multiple_choice, console));
  }
  return row;
}

std::string PlusMinus(const Mean& mean, double factor, int digits) {
  return fmt::format("{:.{}f} +- {:.{}f}", factor * mean.value, digits, factor * mean.error,
                     digits);
}

// The columns of the table that at least one of the rows has.
struct EvalColumn {
  std::string title;
  std::vector<std::string> cells = {};
};

std::vector<EvalColumn> ColumnsOf(const std::vector<EvalRow>& rows) {
  std::vector<EvalColumn> columns = {{"model"},     {"perplexity"}, {"KL divergence"}, {"KL 99 %"},
                                     {"same best"}, {"HellaSwag"},  {"choice"}};
  for (const EvalRow& row : rows) {
    const auto& far = row.divergence;
    const auto share = [](const std::optional<ChoiceScore>& score) {
      return score ? PlusMinus(score->share(), 100, 2) + " %" : std::string();
    };
    const std::string cells[] = {row.model,
                                 row.perplexity ? fmt::format("{:.4f}", *row.perplexity) : "",
                                 far ? PlusMinus(far->kl, 1, 6) : "",
                                 far ? fmt::format("{:.6f}", far->kl_99) : "",
                                 far ? PlusMinus(far->same_best, 100, 2) + " %" : "",
                                 share(row.hella_swag),
                                 share(row.multiple_choice)};
    for (size_t i = 0; i < columns.size(); ++i) columns[i].cells.push_back(cells[i]);
  }
  std::erase_if(columns, [](const EvalColumn& column) {
    return std::ranges::all_of(column.cells, [](const std::string& cell) { return cell.empty(); });
  });
  return columns;
}

std::string EvalTable(const std::vector<EvalRow>& rows) {
  const std::vector<EvalColumn> columns = ColumnsOf(rows);
  std::vector<std::string> lines(rows.size() + 1);
  for (const EvalColumn& column : columns) {
    size_t width = column.title.size();
    for (const std::string& cell : column.cells) width = std::max(width, cell.size());
    lines[0] += fmt::format("| {:<{}} ", column.title, width);
    for (size_t row = 0; row < rows.size(); ++row) {
      lines[row + 1] += fmt::format("| {:<{}} ", column.cells[row], width);
    }
  }
  std::string table;
  for (size_t i = 0; i < lines.size(); ++i) {
    table += lines[i] + "|\n";
    if (i > 0) continue;
    std::string rule = lines[0] + "|\n";
    std::ranges::replace_if(
        rule, [](char c) { return c != '|' && c != '\n'; }, '-');
    table += rule;
  }
  return table;
}

json JsonOfRow(const EvalRow& row) {
  json out = {{"model", row.model}};
  if (row.perplexity) out["perplexity"] = *row.perplexity;
  if (row.divergence) out["divergence"] = JsonOf(*row.divergence);
  if (row.hella_swag) out["hellaswag"] = JsonOf(*row.hella_swag);
  if (row.multiple_choice) out["multiple_choice"] = JsonOf(*row.multiple_choice);
  return out;
}

Result<int> Eval(const EvalFlags& flags, Console& console) {
  RL_RETURN_IF_ERROR(CheckEvalFlags(flags));
  RL_ASSIGN_OR_RETURN(const EvalInput input, ReadInput(flags));
  std::vector<EvalRow> rows;
  Status measured = OkStatus();
  for (size_t i = 0; i < flags.models.size(); ++i) {
    auto row = MeasureModel(flags, input, i, console);
    if (!row) {
      measured = tl::unexpected(std::move(row).error());
      break;
    }
    rows.push_back(*std::move(row));
    if (flags.json) RL_RETURN_IF_ERROR(console.Write(JsonLine(JsonOfRow(rows.back()))));
  }
  // Rows that were measured before an error are printed: each took its time.
  if (!flags.json && !rows.empty()) RL_RETURN_IF_ERROR(console.Write(EvalTable(rows)));
  RL_RETURN_IF_ERROR(measured);
  return 0;
}

}  // namespace

void AddEvalCommand(CLI::App& app, CommandContext& context) {
  const auto flags = std::make_shared<EvalFlags>();
  CLI::App* command =
      app.add_subcommand("eval", "Compare models, such as quantisations, in one table");
  AddModelOptions(*command, flags->config, &flags->models);
  command->add_option("-f,--file", flags->text, "Text for perplexity")->option_text("FILE");
  command
      ->add_option("--kl-divergence-base", flags->log_probs,
                   "File for the log-probabilities of the first model, with which the others are "
                   "compared")
      ->option_text("FILE");
  command->add_option("--hellaswag", flags->hella_swag, "File of HellaSwag")->option_text("FILE");
  command->add_option("--multiple-choice", flags->multiple_choice, "File of questions")
      ->option_text("FILE");
  command
      ->add_option("--tasks", flags->tasks,
                   "The number of tasks, spread over a file; 0: all [default 0]")
      ->option_text("N");
  command->add_flag("--json", flags->json, "As one JSON object a line");
  command->get_option("--ctx-size")
      ->description(fmt::format("Tokens of a chunk; 0: the model's context length [default {}]",
                                kDefaultChunkTokens));
  command->footer(R"(Examples:
  rullama eval -m bf16.gguf -m Q8_0.gguf -m Q4_K_M.gguf -f wiki.test.raw --kl-divergence-base base.kld
  rullama eval -m a.gguf -m b.gguf --hellaswag hellaswag_val_full.txt --tasks 400 --json

Texts are measured as by `rullama perplexity --second-half`.)");
  command->callback([flags, &context] {
    context.action = [flags, &context] { return Eval(*flags, context.console); };
  });
}

}  // namespace rullama::cli
