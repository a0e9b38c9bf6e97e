// rullama perplexity: how well a model predicts a text.
//
// The text is cut into chunks of the context size, each evaluated from an empty cache after a BOS
// token; every token of a chunk is predicted from those before it. With --second-half the
// chunks and the tokens that count are those of llama-perplexity.
#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/bench/score.h"
#include "cli/commands/command.h"
#include "cli/commands/json_text.h"
#include "cli/commands/options.h"
#include "cli/commands/text_chunks.h"

namespace rullama::cli {
namespace {

struct PerplexityFlags {
  ConfigFlags config;
  std::string path;
  std::optional<double> max;
  bool second_half = false;
  bool json = false;
};

struct Score {
  double nll = 0;  // sum, natural logarithm
  int64_t tokens = 0;

  [[nodiscard]] double mean() const { return nll / static_cast<double>(tokens); }
};

// -log softmax(logits)[target], accumulated in float64.
double NegativeLogLikelihood(std::span<const float> logits, int32_t target) {
  const double max = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float x : logits) sum += std::exp(x - max);
  return max + std::log(sum) - logits[static_cast<size_t>(target)];
}

// Adds the tokens of a chunk after its first `given`, at least 1.
Status ScoreChunk(ModelSession& engine, std::span<const int32_t> chunk, size_t given,
                  Score& score) {
  const auto vocabulary = static_cast<size_t>(engine.model().facts().vocabulary);
  return ScoreTokens(engine, chunk, [&](int64_t first, std::span<const float> logits) {
    for (size_t row = 0; row * vocabulary < logits.size(); ++row) {
      const size_t next = static_cast<size_t>(first) + row + 1;
      if (next >= chunk.size()) break;
      if (next < given) continue;
      score.nll += NegativeLogLikelihood(logits.subspan(row * vocabulary, vocabulary), chunk[next]);
      ++score.tokens;
    }
    return OkStatus();
  });
}

// A chunk is BOS and as many tokens of the text as the context has room for. With `second_half` the
// chunks are those of llama-perplexity: only full ones, of the text after one BOS, cut at multiples
// of the context, whose first token BOS replaces.
Result<Score> ScoreText(ModelSession& engine, const std::string& text, bool second_half,
                        Console& console) {
  RL_ASSIGN_OR_RETURN(const auto ids, engine.tokenizer().Encode(text));
  const std::optional<TokenId> bos = engine.tokenizer().bos_id();
  const auto context = static_cast<size_t>(engine.capacity());
  const size_t room = context - (bos ? 1 : 0);
  const size_t stride = second_half ? context : room;
  const size_t given = second_half ? context / 2 + 1 : 1;
  const size_t fewest = second_half ? context : 2;
  if (ids.size() < fewest || room < 1 || given >= context) {
    return MakeError(ErrorKind::kUsage, "perplexity.text",
                     "the text has {} tokens, expected at least {}, and a context of at least {}",
                     ids.size(), fewest, second_half ? 3 : 2);
  }
  Score score;
  Progress progress(console, "perplexity");
  for (size_t begin = 0; begin < ids.size(); begin += stride) {
    const size_t count = std::min(room, ids.size() - begin);
    if (second_half && count < room) break;
    std::vector<int32_t> chunk;
    if (bos) chunk.push_back(*bos);
    const auto part = std::span(ids).subspan(begin, count);
    chunk.insert(chunk.end(), part.begin(), part.end());
    RL_RETURN_IF_ERROR(ScoreChunk(engine, chunk, given, score));
    progress.Update(static_cast<int64_t>(begin + count), static_cast<int64_t>(ids.size()));
  }
  return score;
}

Result<int> Perplexity(const PerplexityFlags& flags, Console& console) {
  RL_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(flags.path, kMaxTextBytes));
  ConfigFlags config = flags.config;
  RL_ASSIGN_OR_RETURN(const LoadedConfig loaded, LoadConfig(config));
  // The context of a chat does not suit a text; the published numbers use short chunks.
  if (loaded.config.origin("context.capacity") != Origin::kFlag) {
    config.settings.push_back(
        {"context.capacity", fmt::format("{}", kDefaultChunkTokens), "perplexity"});
  }
  RL_ASSIGN_OR_RETURN(const auto engine, OpenScoringSession(config, 0, console));
  RL_ASSIGN_OR_RETURN(const Score score, ScoreText(*engine, text, flags.second_half, console));
  const double perplexity = std::exp(score.mean());
  if (flags.json) {
    RL_RETURN_IF_ERROR(console.Write(JsonLine({{"perplexity", perplexity},
                                               {"mean_nll", score.mean()},
                                               {"tokens", score.tokens},
                                               {"second_half", flags.second_half},
                                               {"context", engine->capacity()},
                                               {"backend", engine->devices().backend}})));
  } else {
    RL_RETURN_IF_ERROR(console.Write(
        fmt::format("perplexity {:.4f} (mean negative log-likelihood {:.6f} over {} tokens, "
                    "{}chunks of {})\n",
                    perplexity, score.mean(), score.tokens,
                    flags.second_half ? "the second halves of " : "", engine->capacity())));
  }
  if (flags.max && !(perplexity <= *flags.max)) {
    return MakeError(ErrorKind::kThreshold, "perplexity.above", "perplexity {:.4f} is above {}",
                     perplexity, *flags.max);
  }
  return 0;
}

}  // namespace

void AddPerplexityCommand(CLI::App& app, CommandContext& context) {
  const auto flags = std::make_shared<PerplexityFlags>();
  CLI::App* command = app.add_subcommand("perplexity", "How well a model predicts a text");
  AddModelOptions(*command, flags->config);
  command->add_option("-f,--file", flags->path, "The text")->required()->option_text("FILE");
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
  rullama perplexity -m model.gguf -f wiki.test.raw -c 2048 --max 12.5 --json)");
  command->callback([flags, &context] {
    context.action = [flags, &context] { return Perplexity(*flags, context.console); };
  });
}

}  // namespace rullama::cli
