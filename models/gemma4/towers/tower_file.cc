#include "models/gemma4/towers/tower_file.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "models/gemma4/graph/config.h"

namespace rullama::gemma4 {
namespace {

// Projector types: of the encoder, and of the unified model.
constexpr std::array<std::string_view, 2> kVisionTypes = {"gemma4v", "gemma4uv"};
constexpr std::array<std::string_view, 2> kAudioTypes = {"gemma4a", "gemma4ua"};

// The names of keys, projectors and tensors by which files tell the towers of a kind.
struct KindNames {
  ProjectorNames projectors;
  std::string_view projector;  // a tensor that every such tower has
  std::string_view marker;     // a tensor that only a unified tower has
};

constexpr KindNames kVisionNames = {.projectors = {.key = "vision",
                                                   .has = "clip.has_vision_encoder",
                                                   .projectors = kVisionTypes,
                                                   .family = "Gemma 4"},
                                    .projector = kVisionProjector,
                                    .marker = "v.patch_norm.1.weight"};
constexpr KindNames kAudioNames = {.projectors = {.key = "audio",
                                                  .has = "clip.has_audio_encoder",
                                                  .projectors = kAudioTypes,
                                                  .family = "Gemma 4"},
                                   .projector = kAudioProjector,
                                   .marker = ""};

const KindNames& NamesOf(TowerKind kind) {
  return kind == TowerKind::kVision ? kVisionNames : kAudioNames;
}

std::optional<FoundTower> FindInTextModel(const GgufFile& file, const KindNames& names) {
  if (file.FindTensor(names.projector) == nullptr) return std::nullopt;
  FoundTower tower;
  tower.file = &file;
  tower.prefix = fmt::format("{}.{}.", kGemma4Architecture, names.projectors.key);
  tower.ollama = true;
  tower.unified = names.marker.empty() ? file.FindTensor("a.conv1d.0.weight") == nullptr
                                       : file.FindTensor(names.marker) != nullptr;
  return tower;
}

}  // namespace

std::string_view ProjectorName(TowerKind kind, bool unified) {
  return NamesOf(kind).projectors.projectors[unified ? 1 : 0];
}

Result<std::optional<FoundTower>> FindTower(const GgufFile& file, TowerKind kind) {
  RL_ASSIGN_OR_RETURN(const bool alone, IsProjectorFile(file));
  if (alone) {
    RL_ASSIGN_OR_RETURN(auto found, FindInProjectorFile(file, NamesOf(kind).projectors));
    if (!found) return std::optional<FoundTower>();
    const bool unified = found->projector == ProjectorName(kind, /*unified=*/true);
    return std::optional(FoundTower{*std::move(found), unified});
  }
  RL_ASSIGN_OR_RETURN(const std::string_view architecture, file.GetString("general.architecture"));
  if (architecture == kGemma4Architecture) return FindInTextModel(file, NamesOf(kind));
  return std::optional<FoundTower>();
}

}  // namespace rullama::gemma4
