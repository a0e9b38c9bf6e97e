// Hands the texts of a request to the runner a few at a time: as many as two steps read. So the
// runner always has a step to do, and the texts of other requests do not wait for all of them.
//
// Thread safety: each call is one thread's; the stop may be requested by any.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <vector>

#include "core/base/status.h"
#include "engine/job.h"

namespace rullama {

// Where texts go, and how their vectors come back.
struct TextRunner {
  int64_t rows_of_step = 1;  // that texts share, at most
  int64_t alignment = 1;     // of the first rows of texts in a step
  std::function<std::shared_ptr<AnswerChannel>(std::unique_ptr<Job>)> enqueue;
  std::function<Result<std::vector<float>>(AnswerChannel&)> await;
};

// The vectors of texts, in their order, or the error of each. Once `stop` is requested, the texts
// without a vector are run.cancelled.
std::vector<Result<std::vector<float>>> EmbedAll(std::vector<Result<std::unique_ptr<Job>>> texts,
                                                 const TextRunner& runner,
                                                 const std::stop_token& stop);

}  // namespace rullama
