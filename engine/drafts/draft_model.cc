#include "engine/drafts/draft_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "engine/loading/model_file.h"
#include "engine/scheduling/scheduler_options.h"
#include "models/registry.h"

namespace rullama {
namespace {

// At least drafts.max. GPU kernels read the caches in blocks of 16 rows, so that a ring has to stay
// a multiple of these.
constexpr int64_t kSpareRows = 16;

// A draft model reads tokens as its own tokenizer means them; of a drafter, whose tokenizer nobody
// uses, only the spelling counts: converters disagree about the kind of <mask>.
enum class TokenCheck : uint8_t { kSpelling, kSpellingAndKind };

// The first token that the two vocabularies have not in common; the number that both have if they
// agree in all.
TokenId FirstDifference(const Tokenizer& a, const Tokenizer& b, TokenCheck check) {
  const auto size = static_cast<TokenId>(std::min(a.size(), b.size()));
  for (TokenId id = 0; id < size; ++id) {
    if (a.TokenText(id) != b.TokenText(id)) return id;
    if (check == TokenCheck::kSpellingAndKind && a.kind(id) != b.kind(id)) return id;
  }
  return size;
}

// `vocabulary`: the tokens of the draft model `name`.
Status CheckVocabulary(const std::string& name, const Tokenizer& found, int64_t vocabulary,
                       const LoadedModel& main, TokenCheck check) {
  const Tokenizer& expected = *main.tokenizer;
  const TokenId different = FirstDifference(found, expected, check);
  const bool same = found.size() == expected.size() &&
                    static_cast<size_t>(different) == found.size() &&
                    vocabulary == main.facts().vocabulary;
  if (same) return OkStatus();
  return MakeError(ErrorKind::kUsage, "draft.vocabulary",
                   "the draft model '{}' has {} tokens, the model '{}' {}, and they differ from "
                   "token {} on; expected the same tokens: give a smaller model of the same family",
                   name, vocabulary, main.file.name, main.facts().vocabulary, different);
}

Status CheckTokens(const AssistantFile& file, const LoadedModel& main) {
  RL_ASSIGN_OR_RETURN(const auto tokenizer, MakeTokenizer(*file.file));
  return CheckVocabulary(file.name, *tokenizer, file.assistant->facts().vocabulary, main,
                         TokenCheck::kSpelling);
}

// The assistant that the configuration names; nothing if it names a draft model, or none.
Result<std::optional<AssistantFile>> OpenNamed(const LoadedModel& main, const HostHooks& hooks) {
  if (!main.config().drafts.model) return std::nullopt;
  RL_ASSIGN_OR_RETURN(const ModelFile named, OpenModelFile(main.config().drafts.model));
  if (!IsAssistant(*named.file)) return std::nullopt;
  if (!main.config().drafts.mtp.value_or(true)) {
    return MakeError(ErrorKind::kUsage, "config.conflict",
                     "drafts.mtp is false, but drafts.model names the drafter '{}'; expected one "
                     "of the two",
                     named.name);
  }
  RL_ASSIGN_OR_RETURN(AssistantFile file, OpenAssistant(named.file->path(), *main.model, hooks));
  RL_RETURN_IF_ERROR(CheckTokens(file, main));
  return file;
}

std::optional<AssistantFile> FindUnnamed(const LoadedModel& main, const HostHooks& hooks,
                                         Notices& notices) {
  if (main.config().drafts.model || !main.config().drafts.mtp.value_or(true)) return std::nullopt;
  std::optional<AssistantFile> found = FindAssistant(main.file, *main.model, hooks, notices);
  if (!found) return std::nullopt;
  if (const Status same = CheckTokens(*found, main); !same) {
    notices.Note(fmt::format("no drafter of this model: {}", same.error().message));
    return std::nullopt;
  }
  return found;
}

}  // namespace

bool WantsDrafts(const Config& config) {
  return config.drafts.lookup || config.drafts.model || config.drafts.mtp.value_or(false);
}

Result<std::optional<AssistantFile>> FindAssistantFor(const LoadedModel& main,
                                                      const HostHooks& hooks, Notices& notices) {
  RL_ASSIGN_OR_RETURN(std::optional<AssistantFile> file, OpenNamed(main, hooks));
  const bool named = file.has_value();
  if (!file) file = FindUnnamed(main, hooks, notices);
  const bool asked = named || main.config().drafts.mtp.value_or(false);
  if (!file && asked) {
    return MakeError(ErrorKind::kUsage, "draft.not_found",
                     "drafts.mtp is true, but there is no drafter of model '{}'; expected a file "
                     "mtp-*.gguf next to it, or its name in drafts.model (--draft-model)",
                     main.file.name);
  }
  if (file && main.config().backend.devices.size() > 1) {
    if (asked) {
      return MakeError(ErrorKind::kUsage, "draft.devices",
                       "the drafter '{}' reads caches of the model, whose layers would lie on "
                       "several devices; expected one device",
                       file->name);
    }
    notices.Note("the drafter of the model is not used: its layers lie on several devices");
    return std::nullopt;
  }
  if (!file) return std::nullopt;
  file->asked = asked;
  for (const std::string& warning : file->assistant->warnings()) notices.Warn(warning);
  notices.Note(fmt::format("drafts by '{}'", file->name));
  return file;
}

ModelSessionOptions WithDrafts(ModelSessionOptions options, int64_t most,
                               const AssistantFile* assistant) {
  options.decode_rows = DecodeRows(options.slots, most);
  options.spare_rows = kSpareRows;
  options.assistant = assistant;
  options.max_draft = most;
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
  RL_RETURN_IF_ERROR(CheckVocabulary(model.file.name, *model.tokenizer, model.facts().vocabulary,
                                     main, TokenCheck::kSpellingAndKind));
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
