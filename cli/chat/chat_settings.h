// The settings of answers that a conversation changes with /set. Pure function.
#pragma once

#include <string_view>

#include "core/base/status.h"
#include "engine/api/engine.h"
#include "engine/model_session.h"

namespace rullama::cli {

// Sets the sampler setting `name` of sampler_settings.def, seed or num_predict in `request`, which
// is for `session`. False if there is no such setting. Errors: chat.setting for a text that is not
// a number, sampler.range.
Result<bool> SetAnswerSetting(std::string_view name, std::string_view text,
                              const ModelSession& session, Request& request);

}  // namespace rullama::cli
