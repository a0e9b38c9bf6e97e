// Opens the draft model of an engine (drafts.model).
#pragma once

#include <memory>

#include "core/base/status.h"
#include "engine/drafts/model_drafter.h"
#include "engine/loading/loaded_model.h"
#include "engine/model_session.h"

namespace rullama {

// Whether the configuration asks for drafts of either kind.
[[nodiscard]] bool WantsDrafts(const Config& config);

// The options of a session that checks the drafts of the configuration, if there are any.
[[nodiscard]] ModelSessionOptions WithDrafts(ModelSessionOptions options, const Config& config);

// The drafter of the configuration's draft model for a session of `main`, on the same backend and
// device; null without one. `options`: those of the session. Errors: draft.vocabulary if the two
// models have other tokens, model.canvas if the draft model denoises, those of LoadModel() and
// ModelSession::Open().
Result<std::unique_ptr<ModelDrafter>> OpenDrafter(const LoadedModel& main,
                                                  const ModelSessionOptions& options,
                                                  const HostHooks& hooks, Notices& notices);

}  // namespace rullama
