#include "cli/eval/reports.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "cli/terminal/console.h"

namespace rullama::cli {
namespace {

using nlohmann::json;

constexpr size_t kMaxTaskBytes = size_t{1} << 30;

json JsonOf(const Mean& mean) { return {{"value", mean.value}, {"error", mean.error}}; }

}  // namespace

json JsonOf(const DivergenceReport& report) {
  return {{"tokens", report.tokens},
          {"perplexity", std::exp(report.nll.value)},
          {"base_perplexity", std::exp(report.base_nll.value)},
          {"log_ratio", JsonOf(report.log_ratio)},
          {"correlation", report.correlation},
          {"kl_divergence", JsonOf(report.kl)},
          {"kl_divergence_max", report.kl_max},
          {"kl_divergence_99", report.kl_99},
          {"kl_divergence_median", report.kl_median},
          {"probability_shift_rms", report.shift_rms},
          {"same_best", JsonOf(report.same_best)}};
}

std::string TextOf(const DivergenceReport& report) {
  const double perplexity = std::exp(report.nll.value);
  const double base = std::exp(report.base_nll.value);
  return fmt::format(
      "perplexity             {:.4f} +- {:.4f}, of the base {:.4f} +- {:.4f}, over {} tokens\n"
      "ln of their ratio      {:.6f} +- {:.6f}, correlation {:.2f} %\n"
      "KL divergence          {:.6f} +- {:.6f}, median {:.6f}, 99 % {:.6f}, maximum {:.6f}\n"
      "shift of probabilities {:.3f} % (root mean square)\n"
      "same best token        {:.3f} +- {:.3f} %\n",
      perplexity, perplexity * report.nll.error, base, base * report.base_nll.error, report.tokens,
      report.log_ratio.value, report.log_ratio.error, 100 * report.correlation, report.kl.value,
      report.kl.error, report.kl_median, report.kl_99, report.kl_max, 100 * report.shift_rms,
      100 * report.same_best.value, 100 * report.same_best.error);
}

json JsonOf(const ChoiceScore& score) {
  return {{"tasks", score.tasks},
          {"right", score.right},
          {"accuracy", JsonOf(score.share())},
          {"chance", score.chance}};
}

std::string TextOf(const ChoiceScore& score) {
  const Mean share = score.share();
  return fmt::format("{} of {} tasks right: {:.2f} +- {:.2f} % (by chance {:.2f} %)\n", score.right,
                     score.tasks, 100 * share.value, 100 * share.error, 100 * score.chance);
}

Result<std::vector<ChoiceTask>> ReadChoiceTasks(const std::string& hella_swag,
                                                const std::string& multiple_choice, size_t count) {
  const bool is_text = !hella_swag.empty();
  const std::string& path = is_text ? hella_swag : multiple_choice;
  RL_ASSIGN_OR_RETURN(const std::string content, ReadTextFile(path, kMaxTaskBytes));
  auto tasks = is_text ? ParseHellaSwag(content) : ParseMultipleChoice(content);
  if (!tasks) {
    return tl::unexpected(std::move(tasks).error().WithContext(fmt::format("'{}'", path)));
  }
  return SomeOf(*std::move(tasks), count);
}

Result<int64_t> ContextOfLogProbs(const std::string& path) {
  RL_ASSIGN_OR_RETURN(const LogProbFile file, LogProbFile::Open(path));
  return file.rows().header().context;
}

}  // namespace rullama::cli
