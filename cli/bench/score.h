// Logits of every position of given token ids, step by step; for `logits` and `perplexity`.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "cli/commands/loading.h"

namespace rullama::cli {

// Whether `tokens` tokens fit into the context. Error context.overflow.
Status CheckLength(const ModelSession& engine, size_t tokens);
// Errors: context.overflow, tokenizer.id.
Status CheckIds(const ModelSession& engine, std::span<const int32_t> ids);

// Rows of a step such that its logits stay small compared with the model.
int64_t ScoreRows(int64_t vocabulary, int64_t max_t);

// Whether all logits [rows, vocabulary] are numbers; the first row is the one after position
// `first`. Error backend.nan.
Status CheckLogits(std::span<const float> logits, int64_t first, size_t vocabulary);

// Runs `ids` through slot 0 from an empty cache. Calls `on_rows` with the logits [rows, vocabulary]
// that follow ids[first], ids[first + 1], ... Errors: context.overflow, run.cancelled, backend.nan.
Status ScoreTokens(
    ModelSession& engine, std::span<const int32_t> ids,
    const std::function<Status(int64_t first, std::span<const float> logits)>& on_rows);

// Opens an engine whose graph gives all logits. `chunk` 0 chooses.
Result<std::unique_ptr<ModelSession>> OpenScoringSession(const ConfigFlags& flags, int64_t chunk,
                                                         Console& console);

}  // namespace rullama::cli
