#include "core/diff/bisect.h"

namespace rullama {

Result<std::optional<size_t>> FindFirstBadOp(size_t count,
                                             const std::function<Result<bool>(size_t)>& is_bad) {
  RL_ASSIGN_OR_RETURN(const bool bad, is_bad(count));
  if (!bad) return std::optional<size_t>();
  // is_bad(good) is false, is_bad(wrong) is true.
  size_t good = 0, wrong = count;
  while (wrong - good > 1) {
    const size_t middle = good + (wrong - good) / 2;
    RL_ASSIGN_OR_RETURN(const bool middle_is_bad, is_bad(middle));
    (middle_is_bad ? wrong : good) = middle;
  }
  return std::optional<size_t>(wrong - 1);
}

}  // namespace rullama
