// The assistant of a model in `rullama inspect` and `rullama show`.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "cli/commands/loading.h"

namespace rullama::cli {

// The drafter of a model: that of the file `named`, else the one that lies with the model, with the
// reason where it cannot be read; the file itself if it is a drafter. Null if there is none.
nlohmann::json DrafterAsJson(const ModelFile& model, const std::string& named);

// A line about DrafterAsJson(); empty if it is null.
std::string DrafterText(const nlohmann::json& drafter);

}  // namespace rullama::cli
