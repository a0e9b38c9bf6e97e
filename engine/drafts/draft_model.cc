#include "engine/drafts/draft_model.h"

#include <algorithm>
#include <string>
#include <utility>

#include "engine/scheduling/scheduler_options.h"

namespace rullama {
namespace {

// At least drafts.max. GPU kernels read the caches in blocks of 16 rows, so that a ring has to stay
// a multiple of these.
constexpr int64_t kSpareRows = 16;

// The first token that the two vocabularies have not in common; the number that both have if they
// agree in all.
TokenId FirstDifference(const Tokenizer& a, const Tokenizer& b) {
  const auto size = static_cast<TokenId>(std::min(a.size(), b.size()));
  std::string of_a;
  std::string of_b;
  for (TokenId id = 0; id < size; ++id) {
    of_a.clear();
    of_b.clear();
    a.AppendBytes(id, of_a);
    b.AppendBytes(id, of_b);
    if (of_a != of_b || a.kind(id) != b.kind(id)) return id;
  }
  return size;
}

Status CheckVocabulary(const LoadedModel& draft, const LoadedModel& main) {
  const Tokenizer& found = *draft.tokenizer;
  const Tokenizer& expected = *main.tokenizer;
  const TokenId different = FirstDifference(found, expected);
  const bool same = found.size() == expected.size() &&
                    static_cast<size_t>(different) == found.size() &&
                    draft.facts().vocabulary == main.facts().vocabulary;
  if (same) return OkStatus();
  return MakeError(ErrorKind::kUsage, "draft.vocabulary",
                   "the draft model '{}' has {} tokens, the model '{}' {}, and they differ from "
                   "token {} on; expected the same tokens: give a smaller model of the same family",
                   draft.file.name, draft.facts().vocabulary, main.file.name,
                   main.facts().vocabulary, different);
}

}  // namespace

bool WantsDrafts(const Config& config) {
  return config.drafts.lookup || config.drafts.model.has_value();
}

ModelSessionOptions WithDrafts(ModelSessionOptions options, const Config& config) {
  if (!WantsDrafts(config)) return options;
  options.decode_rows = DecodeRows(options.slots, config.drafts.max);
  options.spare_rows = kSpareRows;
  return options;
}

Result<std::unique_ptr<ModelDrafter>> OpenDrafter(const LoadedModel& main,
                                                  const ModelSessionOptions& options,
                                                  const HostHooks& hooks, Notices& notices) {
  if (!main.config().drafts.model) return std::unique_ptr<ModelDrafter>();
  RL_ASSIGN_OR_RETURN(LayeredConfig layers, main.layers.ForModel(*main.config().drafts.model));
  RL_ASSIGN_OR_RETURN(LoadedModel model, LoadModel(std::move(layers), hooks, notices));
  if (model.facts().denoises()) {
    return MakeError(ErrorKind::kUsage, "model.canvas",
                     "the draft model '{}' denoises canvases and predicts no next token; give one "
                     "that writes token by token",
                     model.file.name);
  }
  RL_RETURN_IF_ERROR(CheckVocabulary(model, main));
  const int64_t capacity = std::min(main.capacity(), model.facts().context_length);
  RL_RETURN_IF_ERROR(model.layers.Set("context.capacity", std::to_string(capacity), Origin::kFlag,
                                      "drafts.model"));
  ModelSessionOptions own = options;
  own.decode_rows = DraftModelRows(options.slots);
  own.observer = nullptr;
  RL_ASSIGN_OR_RETURN(auto session, ModelSession::Open(std::move(model), own, hooks, notices));
  return std::make_unique<ModelDrafter>(std::move(session));
}

}  // namespace rullama
