// What a drafter has in common with the model that it was made for.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>

#include "core/base/status.h"
#include "models/gemma4/drafter/drafter_file.h"
#include "models/gemma4/graph/config.h"

namespace rullama::gemma4 {

// The layer of a model that owns the cache which layers of this kind of its drafter read: that of
// the last layer of the kind. -1: the model has no such layer.
[[nodiscard]] int64_t CacheForDrafter(const Gemma4Config& target, LayerKind kind);

// Errors (kUsage): draft.target, draft.width, draft.vocabulary, draft.heads, draft.layers,
// draft.window.
[[nodiscard]] Status CheckPartner(const DrafterConfig& drafter, const Gemma4Config& target);

}  // namespace rullama::gemma4
