// Where a file keeps an image or audio tower of Gemma 4 (models/common/towers/tower_file.h).
//
// Thread safety: pure functions. Errors: kind kModelFile, ids model.*; gguf.key_*.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/base/status.h"
#include "core/gguf/gguf.h"
#include "models/common/towers/tower_file.h"

namespace rullama::gemma4 {

enum class TowerKind : uint8_t { kVision, kAudio };

// The last tensor of each tower, which makes rows of the text model's width.
inline constexpr std::string_view kVisionProjector = "mm.input_projection.weight";
inline constexpr std::string_view kAudioProjector = "mm.a.input_projection.weight";

struct FoundTower : TowerFile {
  // The network: an encoder with layers, or raw pixels and samples that are only projected.
  bool unified = false;
};

// The kind of network, as files name it: "gemma4v".
[[nodiscard]] std::string_view ProjectorName(TowerKind kind, bool unified);

// The tower of this kind in a file, or nothing if it has none. Error model.projector: the file
// names a projector of another model.
Result<std::optional<FoundTower>> FindTower(const GgufFile& file, TowerKind kind);

}  // namespace rullama::gemma4
