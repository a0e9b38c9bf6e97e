// A text in chunks of the context, each of which is evaluated from an empty cache after BOS.
//
// Thread safety: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/commands/loading.h"
#include "cli/eval/choice_tasks.h"
#include "cli/eval/divergence.h"
#include "cli/eval/log_prob_file.h"
#include "cli/terminal/console.h"

namespace rullama::cli {

// -log softmax(logits)[target], accumulated in float64.
double NegativeLogLikelihood(std::span<const float> logits, int32_t target);

// The negative log-likelihood of some tokens, natural logarithm.
struct TextScore {
  double nll = 0;  // sum
  int64_t tokens = 0;

  [[nodiscard]] double mean() const { return nll / static_cast<double>(tokens); }
};

struct TextChunks {
  std::vector<std::vector<int32_t>> chunks = {};
  size_t given = 1;  // the first tokens of each, which do not count
};
// With `second_half` the chunks and the tokens that count are those of llama-perplexity: only full
// ones, of the text after one BOS, cut at multiples of the context, whose first token BOS replaces.
// Otherwise a chunk is BOS and as many tokens of the text as there is room for. Errors:
// perplexity.text for a text that is too short; text.utf8.
Result<TextChunks> ChunksOf(const ModelSession& model, const std::string& text, bool second_half);

// Called with the logits before each token that counts.
using OnRow = std::function<Status(std::span<const float> logits, int32_t next)>;
// The score of the chunks; `on_row` may be empty.
Result<TextScore> ScoreChunks(ModelSession& model, const TextChunks& chunks, Console& console,
                              const OnRow& on_row = {});

// The score of the second halves of the text, whose log-probabilities are written to a file.
Result<TextScore> WriteLogProbs(ModelSession& model, const TextChunks& chunks,
                                const std::string& path, Console& console);
// How far the model is from one whose log-probabilities are in a file. Errors: eval.file also for
// one of another vocabulary; context.overflow for one of longer chunks.
Result<DivergenceReport> CompareWith(ModelSession& model, const std::string& path,
                                     Console& console);

struct ChoiceScore {
  int64_t tasks = 0;
  int64_t right = 0;
  double chance = 0;  // the share that guessing gives

  [[nodiscard]] Mean share() const;
};
// The model chooses the answer whose tokens, from the first one on that differs, are the likeliest
// in the mean. Error context.overflow for a task that does not fit.
Result<ChoiceScore> ScoreChoices(ModelSession& model, std::span<const ChoiceTask> tasks,
                                 Console& console);

}  // namespace rullama::cli
