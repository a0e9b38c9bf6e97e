// The drafter as a graph of ops: all tokens of a draft, one step after another, in one graph.
//
// Each step takes the newest token and a vector of the model's width. For the first step that is
// what the model's last norm gave for the row before (draft_names::kHidden), then what the drafter
// makes of it. The attention of the drafter's layers reads caches of the model (partner.h). All
// steps have the same position, the newest token's, and see the same rows.
//
// Value names that tests rely on: those of models/gemma4/graph/model.h and "draft.input",
// "draft.next" and "logits", after "draft.N." of step N from 0 on. A head with ordered embeddings
// has "head.clusters" (i32[T, chosen]) and "head.scores" (f32[T, chosen, tokens of a cluster]) in
// place of "logits".
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/base/status.h"
#include "models/common/assistant.h"
#include "models/common/graph/tensor_table.h"
#include "models/common/model_graph.h"
#include "models/gemma4/drafter/drafter_file.h"
#include "models/gemma4/graph/config.h"

namespace rullama::gemma4 {

// Begins the names of the drafter's constants, which are tensors of another file than the model's.
inline constexpr std::string_view kDrafterPrefix = "mtp.";
// Constants that no file has: the rows of the head cluster by cluster, and the tokens they are for.
inline constexpr std::string_view kClusteredHead = "mtp.head.clusters";
inline constexpr std::string_view kClusteredTokens = "mtp.head.tokens";

struct DraftGraphParts {
  const DrafterConfig& config;
  const ModelWeights& weights;  // their tensors have the prefix
  const Gemma4Config& target;
  const ModelWeights& target_weights;
};

// As Assistant::BuildGraph. Errors: those of BuildModel.
Result<ModelGraph> BuildDraftGraph(const DraftGraphParts& parts, const BuildOptions& options,
                                   const DraftShape& draft);

}  // namespace rullama::gemma4
