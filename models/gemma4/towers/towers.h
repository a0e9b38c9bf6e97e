// Implements the interface of all families for the towers of Gemma 4.
#pragma once

#include <cstdint>

#include "core/base/status.h"
#include "core/gguf/gguf.h"
#include "models/common/towers.h"

namespace rullama::gemma4 {

// The towers of a file for a text model of this width. Errors: those of ReadVisionTower and
// ReadAudioTower.
Result<Towers> ReadTowers(const GgufFile& file, int64_t text_width);

// The towers of a file for the text model that they were made for, of any width.
Result<Towers> ReadTowers(const GgufFile& file);

}  // namespace rullama::gemma4
