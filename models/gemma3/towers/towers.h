// Implements the interface of all families for the tower of Gemma 3.
#pragma once

#include <cstdint>

#include "core/base/status.h"
#include "core/gguf/gguf.h"
#include "models/common/towers.h"

namespace rullama::gemma3 {

// The tower of a file for a text model of this width. Errors: those of ReadVisionTower.
Result<Towers> ReadTowers(const GgufFile& file, int64_t text_width);

// The tower of a file for the text model that it was made for, of any width.
Result<Towers> ReadTowers(const GgufFile& file);

}  // namespace rullama::gemma3
