// Opens the draft model of an engine (drafts.model), or the model's assistant.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "core/base/status.h"
#include "engine/drafts/assistant_file.h"
#include "engine/drafts/model_drafter.h"
#include "engine/loading/loaded_model.h"
#include "engine/model_session.h"

namespace rullama {

// Whether the configuration asks for drafts of any kind.
[[nodiscard]] bool WantsDrafts(const Config& config);

// The assistant that drafts for `main`: the file that drafts.model names, if it is one, or else one
// that lies with the model, unless drafts.model or drafts.mtp is against it. Nothing if there is
// none. Errors: those of OpenAssistant; draft.vocabulary; config.conflict if drafts.mtp is false
// for one that is named; draft.not_found if drafts.mtp asks for one that is not there;
// draft.devices if the layers of the model are to lie on several devices.
Result<std::optional<AssistantFile>> FindAssistantFor(const LoadedModel& main,
                                                      const HostHooks& hooks, Notices& notices);

// The options of a session that checks drafts of up to `most` tokens. `assistant`: null, or
// borrowed by the session.
[[nodiscard]] ModelSessionOptions WithDrafts(ModelSessionOptions options, int64_t most,
                                             const AssistantFile* assistant);

// The drafter of the configuration's draft model for a session of `main`, on the same backend and
// device; null without one. `options`: those of the session. Errors: draft.vocabulary if the two
// models have other tokens, model.canvas if the draft model denoises, those of LoadModel() and
// ModelSession::Open().
Result<std::unique_ptr<ModelDrafter>> OpenDrafter(const LoadedModel& main,
                                                  const ModelSessionOptions& options,
                                                  const HostHooks& hooks, Notices& notices);

}  // namespace rullama
