// rullama perplexity: how well a model predicts a text, how far it is from another model, and how
// often it chooses the right answer.
#include <cmath>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "cli/bench/score.h"
#include "cli/commands/command.h"
#include "cli/commands/json_text.h"
#include "cli/commands/options.h"
#include "cli/commands/text_limits.h"
#include "cli/eval/reports.h"
#include "cli/eval/text_chunks.h"

namespace rullama::cli {
namespace {

struct PerplexityFlags {
  ConfigFlags config;
  std::string path;
  std::string log_probs;  // a file, written, or read with `compares`
  std::string hella_swag;
  std::string multiple_choice;
  std::optional<size_t> tasks = {};  // of these two; 0, or without a value: all
  std::optional<double> max;
  bool compares = false;
  bool second_half = false;
  bool json = false;
};

// Tasks are measured, not a text.
bool HasChoices(const PerplexityFlags& flags) {
  return !flags.hella_swag.empty() || !flags.multiple_choice.empty();
}

// Options that what is measured has no use for.
Status CheckUnused(const PerplexityFlags& flags) {
  const bool choices = HasChoices(flags);
  const struct {
    std::string_view option;
    bool unused;
    std::string_view measured;
  } options[] = {
      {"--max", choices && flags.max.has_value(), "tasks"},
      {"--kl-divergence-base", choices && !flags.log_probs.empty(), "tasks"},
      {"--second-half", choices && flags.second_half, "tasks"},
      {"--second-half", flags.compares && flags.second_half, "--kl-divergence"},
      {"--tasks", !choices && flags.tasks.has_value(), "texts"},
  };
  for (const auto& [option, unused, measured] : options) {
    if (!unused) continue;
    return MakeError(ErrorKind::kUsage, "usage.option", "{} has no effect with {}; leave it out",
                     option, measured);
  }
  return OkStatus();
}

Status CheckPerplexityFlags(const PerplexityFlags& flags) {
  const int modes = static_cast<int>(flags.compares) + static_cast<int>(!flags.hella_swag.empty()) +
                    static_cast<int>(!flags.multiple_choice.empty());
  if (modes > 1 || (modes == 1 && !flags.path.empty())) {
    return MakeError(ErrorKind::kUsage, "usage.option",
                     "--file, --kl-divergence, --hellaswag and --multiple-choice each say what is "
                     "measured; give one of them");
  }
  if (flags.compares && flags.log_probs.empty()) {
    return MakeError(ErrorKind::kUsage, "usage.option",
                     "--kl-divergence needs --kl-divergence-base FILE");
  }
  if (modes == 0 && flags.path.empty()) {
    return MakeError(ErrorKind::kUsage, "usage.option", "-f FILE is missing; name the text");
  }
  return CheckUnused(flags);
}

Status CheckMost(const PerplexityFlags& flags, double perplexity) {
  if (!flags.max || perplexity <= *flags.max) return OkStatus();
  return MakeError(ErrorKind::kThreshold, "perplexity.above", "perplexity {:.4f} is above {}",
                   perplexity, *flags.max);
}

Status ShowText(const PerplexityFlags& flags, const ModelSession& engine, const TextScore& score,
                Console& console) {
  const double perplexity = std::exp(score.mean());
  const bool halves = flags.second_half || !flags.log_probs.empty();
  if (flags.json) {
    return console.Write(JsonLine({{"perplexity", perplexity},
                                   {"mean_nll", score.mean()},
                                   {"tokens", score.tokens},
                                   {"second_half", halves},
                                   {"context", engine.capacity()},
                                   {"backend", engine.devices().backend}}));
  }
  return console.Write(
      fmt::format("perplexity {:.4f} (mean negative log-likelihood {:.6f} over {} tokens, "
                  "{}chunks of {})\n",
                  perplexity, score.mean(), score.tokens, halves ? "the second halves of " : "",
                  engine.capacity()));
}

Status MeasureText(const PerplexityFlags& flags, ModelSession& engine, Console& console) {
  RL_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(flags.path, kMaxTextBytes));
  const bool writes = !flags.log_probs.empty();
  RL_ASSIGN_OR_RETURN(const TextChunks chunks, ChunksOf(engine, text, flags.second_half || writes));
  RL_ASSIGN_OR_RETURN(const TextScore score,
                      writes ? WriteLogProbs(engine, chunks, flags.log_probs, console)
                             : ScoreChunks(engine, chunks, console));
  RL_RETURN_IF_ERROR(ShowText(flags, engine, score, console));
  return CheckMost(flags, std::exp(score.mean()));
}

Status MeasureDivergence(const PerplexityFlags& flags, ModelSession& engine, Console& console) {
  RL_ASSIGN_OR_RETURN(const DivergenceReport report, CompareWith(engine, flags.log_probs, console));
  RL_RETURN_IF_ERROR(console.Write(flags.json ? JsonLine(JsonOf(report)) : TextOf(report)));
  return CheckMost(flags, std::exp(report.nll.value));
}

Status MeasureChoices(const PerplexityFlags& flags, ModelSession& engine, Console& console) {
  RL_ASSIGN_OR_RETURN(const auto tasks, ReadChoiceTasks(flags.hella_swag, flags.multiple_choice,
                                                        flags.tasks.value_or(0)));
  RL_ASSIGN_OR_RETURN(const ChoiceScore score, ScoreChoices(engine, tasks, console));
  return console.Write(flags.json ? JsonLine(JsonOf(score)) : TextOf(score));
}

Result<int> Perplexity(const PerplexityFlags& flags, Console& console) {
  RL_RETURN_IF_ERROR(CheckPerplexityFlags(flags));
  ConfigFlags config = flags.config;
  RL_ASSIGN_OR_RETURN(const LoadedConfig loaded, LoadConfig(config));
  // The context of a chat does not suit a text; the published numbers use short chunks.
  if (loaded.config.origin("context.capacity") != Origin::kFlag) {
    RL_ASSIGN_OR_RETURN(const int64_t tokens, flags.compares
                                                  ? ContextOfLogProbs(flags.log_probs)
                                                  : Result<int64_t>(kDefaultChunkTokens));
    config.settings.push_back({"context.capacity", fmt::format("{}", tokens), "perplexity"});
  }
  RL_ASSIGN_OR_RETURN(const auto engine, OpenScoringSession(config, 0, console));
  if (flags.compares) {
    RL_RETURN_IF_ERROR(MeasureDivergence(flags, *engine, console));
  } else if (HasChoices(flags)) {
    RL_RETURN_IF_ERROR(MeasureChoices(flags, *engine, console));
  } else {
    RL_RETURN_IF_ERROR(MeasureText(flags, *engine, console));
  }
  return 0;
}

}  // namespace

void AddPerplexityCommand(CLI::App& app, CommandContext& context) {
  const auto flags = std::make_shared<PerplexityFlags>();
  CLI::App* command = app.add_subcommand("perplexity", "How well a model predicts a text");
  AddModelOptions(*command, flags->config);
  command->add_option("-f,--file", flags->path, "The text")->option_text("FILE");
  command
      ->add_option("--kl-divergence-base", flags->log_probs,
                   "File for the log-probabilities of second halves, in llama-perplexity's form")
      ->option_text("FILE");
  command->add_flag("--kl-divergence", flags->compares,
                    "Compare with the model whose log-probabilities are in that file");
  command
      ->add_option("--hellaswag", flags->hella_swag,
                   "Choose endings: a file of HellaSwag in llama-perplexity's form")
      ->option_text("FILE");
  command
      ->add_option("--multiple-choice", flags->multiple_choice,
                   "Choose answers: a file in llama-perplexity's form")
      ->option_text("FILE");
  command
      ->add_option("--tasks", flags->tasks,
                   "The number of tasks, spread over the file; 0: all [default 0]")
      ->option_text("N");
  command->add_option("--max", flags->max, "Exit with code 7 above this perplexity")
      ->option_text("X");
  command->add_flag("--second-half", flags->second_half,
                    "Count what llama-perplexity counts: the second halves of whole chunks");
  command->add_flag("--json", flags->json, "As one JSON object");
  command->get_option("--ctx-size")
      ->description(fmt::format("Tokens of a chunk; 0: the model's context length [default {}]",
                                kDefaultChunkTokens));
  command->footer(R"(Examples:
  rullama perplexity -m model.gguf -f wiki.test.raw
  rullama perplexity -m model.gguf -f wiki.test.raw --second-half
  rullama perplexity -m model-bf16.gguf -f wiki.test.raw --kl-divergence-base base.kld
  rullama perplexity -m model-Q4_K_M.gguf --kl-divergence --kl-divergence-base base.kld
  rullama perplexity -m model.gguf --hellaswag hellaswag_val_full.txt --tasks 400
  rullama perplexity -m model.gguf -f wiki.test.raw -c 2048 --max 12.5 --json)");
  command->callback([flags, &context] {
    context.action = [flags, &context] { return Perplexity(*flags, context.console); };
  });
}

}  // namespace rullama::cli
