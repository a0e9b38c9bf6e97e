// Finds the op that makes a result wrong, by running the first ops of a graph on the backend in
// question and the others on the baseline.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>

#include "core/base/status.h"

namespace rullama {

// `is_bad(k)`: whether the result is wrong with the first k of `count` ops on the backend and the
// rest on the baseline. is_bad(0) is false. Returns the index of the first op that makes it wrong
// (with several wrong ones: the first of them, unless their errors cancel), or nothing if
// is_bad(count) is false. Asks about log2(count) + 1 times. Errors of is_bad pass through.
Result<std::optional<size_t>> FindFirstBadOp(size_t count,
                                             const std::function<Result<bool>(size_t)>& is_bad);

}  // namespace rullama
