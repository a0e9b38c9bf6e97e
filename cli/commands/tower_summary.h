// The towers of a model file for `rullama inspect`: their sizes, and what a picture or a sound
// costs. Thread safety: none; used by main's thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "core/gguf/gguf.h"
#include "models/common/towers.h"

namespace rullama::cli {

// An object with the members "picture" and "sound" for the towers that there are: projector,
// layers, width, parameters, bytes, and "costs", a list with tokens, tflop and work_bytes (memory
// in addition to the weights) by number of tokens. `file` has the tensors. Errors: those of
// MediaEncoder::PredictMemory.
Result<nlohmann::json> TowersAsJson(const Towers& towers, const GgufFile& file);

// The same as lines of text.
std::string TowersText(const nlohmann::json& towers);

}  // namespace rullama::cli
