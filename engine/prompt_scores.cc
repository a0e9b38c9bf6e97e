#include "engine/prompt_scores.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace rullama {
namespace {

// The ids of the `count` best tokens, the best first.
std::vector<int32_t> BestTokens(std::span<const float> logits, size_t count) {
  std::vector<int32_t> best;
  if (count == 0) return best;
  best.reserve(count + 1);
  const auto value = [logits](int32_t token) { return logits[static_cast<size_t>(token)]; };
  for (size_t i = 0; i < logits.size(); ++i) {
    if (best.size() == count && logits[i] <= value(best.back())) continue;
    const auto at = std::ranges::upper_bound(best, logits[i], std::greater(), value);
    best.insert(at, static_cast<int32_t>(i));
    if (best.size() > count) best.pop_back();
  }
  return best;
}

// The natural logarithm of the sum of the exponentials.
double LogSum(std::span<const float> logits) {
  const float greatest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - greatest);
  return std::log(sum) + static_cast<double>(greatest);
}

}  // namespace

Result<PromptLogprob> ScoreToken(std::span<const float> logits, int32_t token, int32_t top) {
  const double all = LogSum(logits);
  if (std::isnan(all)) {
    return MakeError(ErrorKind::kRuntime, "backend.nan",
                     "the logits before a token of the prompt are not numbers; the model file may "
                     "be damaged, or the backend computes wrongly (compare with `--backend "
                     "reference`)");
  }
  const auto logprob_of = [&](int32_t one) {
    const double logprob = static_cast<double>(logits[static_cast<size_t>(one)]) - all;
    return TokenLogprob{one, static_cast<float>(std::min(logprob, 0.0))};
  };
  const auto place = static_cast<size_t>(token);
  const float own = logits[place];
  PromptLogprob score{.own = logprob_of(token), .rank = 1};
  score.rank += std::ranges::count_if(logits, [own](float logit) { return logit > own; });
  score.rank += std::ranges::count(logits.first(place), own);
  for (const int32_t one : BestTokens(logits, static_cast<size_t>(top))) {
    score.top.push_back(logprob_of(one));
  }
  return score;
}

}  // namespace rullama
