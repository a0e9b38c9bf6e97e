// Where the steps that read a prompt end.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/runtime/soft_rows.h"
#include "models/common/chat.h"

namespace rullama {

// Fewest rows between a cut and a border at which the next cut is made.
inline constexpr int64_t kMinTurnRows = 64;

// The positions in (0, tokens] at which a prompt is cut, ascending: `chunk` rows after the last
// cut, or at the first border at least kMinTurnRows after it; of turns, after the last cut that is
// not before a passage. Cuts depend on the tokens before them and the rest of their turn only, so a
// prompt keeps its cuts when it grows: a request that reads it from a cut on runs the same steps as
// one that reads all of it.
//
// `media` are ascending. There is a cut after each, so that the last chunk, after which tokens are
// drawn, has no soft tokens. There is none inside a picture whose rows see each other: the cut is
// before it, and the picture is a chunk of its own if it is longer than `chunk`. Pure
// function.
std::vector<int64_t> CutPoints(int64_t tokens, int64_t chunk, const PromptBorders& borders,
                               std::span<const SoftRows> media = {});

// Whether a snapshot is worth its memory at a cut: at turn borders, which cut a chunk short, at the
// last cut of the prompt, after every eighth, and at the last whole chunk before the borders that
// end the prompt: other questions about the same document may share no more with it. `position` is
// one of `cuts`. Pure function.
bool IsSnapshotPoint(std::span<const int64_t> cuts, int64_t position, int64_t chunk);

}  // namespace rullama
