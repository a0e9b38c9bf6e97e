// The preparation of texts for an encoder, and of its vectors for callers.
// Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/runtime/session.h"
#include "core/tokenizer/tokenizer.h"
#include "engine/loading/backend_setup.h"
#include "engine/loading/loaded_model.h"

namespace rullama {

// The prompt of a task; empty for none. Error usage.request with the names that there are.
Result<std::string_view> PromptFor(const Model& model, std::string_view task);

// The token after the texts of an embedding model. Error chat.markers_missing.
Result<TokenId> EndOfText(const LoadedModel& model);

// Whether the ids of a text for an embedding model begin with BOS. Error usage.request.
Status CheckBeginsWithBos(const Tokenizer& tokenizer, std::span<const int32_t> ids);

// The most rows of a step that several texts share: enough for products at full speed, few enough
// that a step, and with it the wait for the next one, is short.
[[nodiscard]] int64_t SharedRowsOf(const BackendDevices& devices);

// The same for the graph of an encoder: 1, so that none share a step, where a processor and another
// device have parts of it. A processor chooses kernels of a part without attention by the rows of a
// step (docs/numerics.md). Errors of PlaceOps().
Result<int64_t> SharedRowsOf(const BackendDevices& devices, const Graph& graph);

// The most means of texts that the layers after them take in a step: on processors one.
[[nodiscard]] int64_t SharedMeansOf(const BackendDevices& devices);

// The same for the graph of these layers, if the model has them. 1 if a processor runs any of them:
// it chooses kernels by the rows of a step, so means would not keep their bytes. Errors of
// PlaceOps().
Result<int64_t> SharedMeansOf(const BackendDevices& devices, const Session& session,
                              std::optional<GraphHandle> head);

// The first rows of texts that share a step are multiples of this number (docs/numerics.md).
[[nodiscard]] int64_t TextAlignmentOf(const BackendDevices& devices);

// A vector cut to its first `dimensions` numbers, 0 for all, and scaled to length 1. Error
// backend.nan for one that is zero or not finite.
Result<std::vector<float>> FinishEmbedding(std::vector<float> values, int64_t dimensions);

}  // namespace rullama
