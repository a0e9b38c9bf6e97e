#include "cli/eval/text_chunks.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "cli/bench/score.h"
#include "core/base/mmap_file.h"

namespace rullama::cli {
namespace {

// The tokens of all answers of a task, and the number of tokens that they have in common, after
// each of which one follows.
struct TokenizedTask {
  std::vector<std::vector<int32_t>> answers;
  size_t common = 0;
};

Result<TokenizedTask> TokenizeTask(const ModelSession& model, const ChoiceTask& task) {
  TokenizedTask out;
  size_t shortest = std::numeric_limits<size_t>::max();
  for (const std::string& answer : task.answers) {
    RL_ASSIGN_OR_RETURN(std::vector<int32_t> ids,
                        model.tokenizer().Encode(task.question + " " + answer,
                                                 {.parse_special = false, .add_bos = true}));
    shortest = std::min(shortest, ids.size());
    out.answers.push_back(std::move(ids));
  }
  if (shortest < 2) {
    return MakeError(ErrorKind::kUsage, "eval.file", "an answer has fewer than two tokens");
  }
  const std::vector<int32_t>& first = out.answers.front();
  const auto same = [&](size_t place) {
    return std::ranges::all_of(out.answers,
                               [&](const auto& ids) { return ids[place] == first[place]; });
  };
  while (out.common + 1 < shortest && same(out.common)) ++out.common;
  out.common = std::max<size_t>(out.common, 1);
  return out;
}

// The mean log-probability of the tokens from `common` on.
Result<double> MeanOfAnswer(ModelSession& model, std::span<const int32_t> ids, size_t common) {
  const auto vocabulary = static_cast<size_t>(model.model().facts().vocabulary);
  double sum = 0;
  // The logits after the last token are not needed.
  const auto read = ids.first(ids.size() - 1);
  RL_RETURN_IF_ERROR(ScoreTokens(model, read, [&](int64_t first, std::span<const float> logits) {
    for (size_t row = 0; row * vocabulary < logits.size(); ++row) {
      const size_t next = static_cast<size_t>(first) + row + 1;
      if (next < common) continue;
      sum -= NegativeLogLikelihood(logits.subspan(row * vocabulary, vocabulary), ids[next]);
    }
    return OkStatus();
  }));
  return sum / static_cast<double>(ids.size() - common);
}

}  // namespace

double NegativeLogLikelihood(std::span<const float> logits, int32_t target) {
  const double max = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float x : logits) sum += std::exp(x - max);
  return max + std::log(sum) - logits[static_cast<size_t>(target)];
}

Result<TextChunks> ChunksOf(const ModelSession& model, const std::string& text, bool second_half) {
  RL_ASSIGN_OR_RETURN(const auto ids, model.tokenizer().Encode(text));
  const std::optional<TokenId> bos = model.tokenizer().bos_id();
  const auto context = static_cast<size_t>(model.capacity());
  const size_t room = context - (bos ? 1 : 0);
  const size_t stride = second_half ? context : room;
  const size_t fewest = second_half ? context : 2;
  TextChunks out{.given = second_half ? context / 2 + 1 : 1};
  if (ids.size() < fewest || room < 1 || out.given >= context) {
    return MakeError(ErrorKind::kUsage, "perplexity.text",
                     "the text has {} tokens, expected at least {}, and a context of at least {}",
                     ids.size(), fewest, second_half ? 3 : 2);
  }
  for (size_t begin = 0; begin < ids.size(); begin += stride) {
    const size_t count = std::min(room, ids.size() - begin);
    if (second_half && count < room) break;
    std::vector<int32_t>& chunk = out.chunks.emplace_back();
    if (bos) chunk.push_back(*bos);
    const auto part = std::span(ids).subspan(begin, count);
    chunk.insert(chunk.end(), part.begin(), part.end());
  }
  return out;
}

Result<TextScore> ScoreChunks(ModelSession& model, const TextChunks& chunks, Console& console,
                              const OnRow& on_row) {
  const auto vocabulary = static_cast<size_t>(model.model().facts().vocabulary);
  TextScore score;
  Progress progress(console, "perplexity");
  int64_t done = 0;
  for (const std::vector<int32_t>& chunk : chunks.chunks) {
    const auto take = [&](int64_t first, std::span<const float> logits) -> Status {
      for (size_t row = 0; row * vocabulary < logits.size(); ++row) {
        const size_t next = static_cast<size_t>(first) + row + 1;
        if (next >= chunk.size()) break;
        if (next < chunks.given) continue;
        const auto of_row = logits.subspan(row * vocabulary, vocabulary);
        const double nll = NegativeLogLikelihood(of_row, chunk[next]);
        if (std::isnan(nll)) {
          return MakeError(ErrorKind::kRuntime, "backend.nan",
                           "the logits of a token are not finite");
        }
        score.nll += nll;
        ++score.tokens;
        if (on_row) RL_RETURN_IF_ERROR(on_row(of_row, chunk[next]));
      }
      return OkStatus();
    };
    RL_RETURN_IF_ERROR(ScoreTokens(model, chunk, take));
    progress.Update(++done, std::ssize(chunks.chunks));
  }
  return score;
}

Result<TextScore> WriteLogProbs(ModelSession& model, const TextChunks& chunks,
                                const std::string& path, Console& console) {
  LogProbHeader header{.context = std::ssize(chunks.chunks.front()),
                       .vocabulary = model.model().facts().vocabulary,
                       .chunks = std::ssize(chunks.chunks)};
  for (const std::vector<int32_t>& chunk : chunks.chunks) {
    header.tokens.insert(header.tokens.end(), chunk.begin(), chunk.end());
  }
  RL_ASSIGN_OR_RETURN(LogProbWriter writer, LogProbWriter::Create(path, header));
  const auto append = [&writer](std::span<const float> logits, int32_t /*next*/) {
    return writer.Append(logits);
  };
  RL_ASSIGN_OR_RETURN(const TextScore score, ScoreChunks(model, chunks, console, append));
  RL_RETURN_IF_ERROR(writer.Finish());
  return score;
}

Result<DivergenceReport> CompareWith(ModelSession& model, const std::string& path,
                                     Console& console) {
  RL_ASSIGN_OR_RETURN(const LogProbFile file, LogProbFile::Open(path));
  const LogProbRows& rows = file.rows();
  const LogProbHeader& header = rows.header();
  const int64_t vocabulary = model.model().facts().vocabulary;
  if (header.vocabulary != vocabulary) {
    return MakeError(ErrorKind::kUsage, "eval.file",
                     "the log-probabilities in '{}' are of {} tokens, the model has {}; compare "
                     "models of one vocabulary",
                     path, header.vocabulary, vocabulary);
  }
  const std::optional<TokenId> bos = model.tokenizer().bos_id();
  TextChunks chunks{.given = static_cast<size_t>(header.first_counted())};
  for (int64_t chunk = 0; chunk < header.chunks; ++chunk) {
    const std::span<const int32_t> tokens = header.Chunk(chunk);
    chunks.chunks.emplace_back(tokens.begin(), tokens.end());
    if (bos) chunks.chunks.back().front() = *bos;
  }
  Divergence divergence;
  int64_t row = 0;
  const auto compare = [&](std::span<const float> logits, int32_t next) -> Status {
    const auto base = rows.Row(row / header.counted(), row % header.counted());
    if (!base) return tl::unexpected(Error(base.error()).WithContext(fmt::format("'{}'", path)));
    divergence.Add(logits, *base, next);
    ++row;
    return OkStatus();
  };
  RL_RETURN_IF_ERROR(ScoreChunks(model, chunks, console, compare));
  return divergence.Report();
}

Mean ChoiceScore::share() const {
  const auto count = static_cast<double>(tasks);
  const double share = static_cast<double>(right) / count;
  return {share, tasks > 1 ? std::sqrt(share * (1 - share) / (count - 1)) : 0};
}

Result<ChoiceScore> ScoreChoices(ModelSession& model, std::span<const ChoiceTask> tasks,
                                 Console& console) {
  ChoiceScore score;
  Progress progress(console, "tasks");
  for (const ChoiceTask& task : tasks) {
    RL_ASSIGN_OR_RETURN(const TokenizedTask tokens, TokenizeTask(model, task));
    std::vector<double> means;
    for (const std::vector<int32_t>& answer : tokens.answers) {
      RL_ASSIGN_OR_RETURN(means.emplace_back(), MeanOfAnswer(model, answer, tokens.common));
    }
    const auto best = static_cast<size_t>(std::ranges::max_element(means) - means.begin());
    if (task.right[best]) ++score.right;
    const auto right = static_cast<double>(std::ranges::count(task.right, true));
    score.chance += right / static_cast<double>(task.answers.size());
    progress.Update(++score.tasks, std::ssize(tasks));
  }
  score.chance /= static_cast<double>(score.tasks);
  return score;
}

}  // namespace rullama::cli
