// Ids of soft rows, which stand in a prompt for the rows of pictures and sounds.
//
// A soft row has no token. In its place it has a negative id made of the hash of its medium, the
// kind of the medium and the row, so that prompts with equal ids are equal prompts, pictures and
// sounds included. A medium of n rows has an id of 30 n bits. Markers stand between neighbouring
// media, so each run of soft rows is one medium.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/media_kind.h"
#include "core/runtime/soft_rows.h"
#include "media/media_hash.h"

namespace rullama {

// The id of row `row`, from 0, of a medium.
[[nodiscard]] int32_t SoftRowId(MediaKind kind, const MediaHash& hash, int64_t row);
[[nodiscard]] constexpr bool IsSoftRow(int32_t id) { return id < 0; }
// The kind of the medium to which the soft row belongs.
[[nodiscard]] MediaKind KindOfSoftRow(int32_t id);

// The media of a prompt, ascending, without their values. `whole_pictures`: as
// MediaFacts::whole_pictures.
[[nodiscard]] std::vector<SoftRows> SoftRowsOf(std::span<const int32_t> prompt,
                                               bool whole_pictures);

}  // namespace rullama
