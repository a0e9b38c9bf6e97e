#include "models/gemma4/towers/tower_file.h"

#include <utility>

#include "models/common/graph/hparams.h"
#include "models/common/towers.h"
#include "models/gemma4/graph/config.h"

namespace rullama::gemma4 {
namespace {

// The names of keys, projectors and tensors by which files tell the towers of a kind.
struct KindNames {
  std::string_view key;      // part of the keys
  std::string_view has;      // the key that says whether an mmproj file has the tower
  std::string_view encoder;  // projector types
  std::string_view unified;
  std::string_view projector;  // a tensor that every such tower has
  std::string_view marker;     // a tensor that only a unified tower has
};

constexpr KindNames kVisionNames = {.key = "vision",
                                    .has = "clip.has_vision_encoder",
                                    .encoder = "gemma4v",
                                    .unified = "gemma4uv",
                                    .projector = kVisionProjector,
                                    .marker = "v.patch_norm.1.weight"};
constexpr KindNames kAudioNames = {.key = "audio",
                                   .has = "clip.has_audio_encoder",
                                   .encoder = "gemma4a",
                                   .unified = "gemma4ua",
                                   .projector = kAudioProjector,
                                   .marker = ""};

const KindNames& NamesOf(TowerKind kind) {
  return kind == TowerKind::kVision ? kVisionNames : kAudioNames;
}

Result<std::optional<TowerFile>> FindInProjectorFile(const GgufFile& file, const KindNames& names) {
  RL_ASSIGN_OR_RETURN(const auto has, file.FindBool(names.has));
  if (!has.value_or(false)) return std::optional<TowerFile>();
  TowerFile tower{.file = &file, .prefix = fmt::format("clip.{}.", names.key)};
  RL_ASSIGN_OR_RETURN(auto projector, file.FindString(tower.Key("projector_type")));
  if (!projector) {
    RL_ASSIGN_OR_RETURN(projector, file.FindString("clip.projector_type"));
  }
  const std::string_view found = projector.value_or("missing");
  if (found != names.encoder && found != names.unified) {
    return MakeError(ErrorKind::kModelFile, "model.projector",
                     "the {} projector of the file is '{}', expected '{}' or '{}'; use the mmproj "
                     "file that belongs to the Gemma 4 model",
                     names.key, found, names.encoder, names.unified);
  }
  tower.unified = found == names.unified;
  return std::optional(std::move(tower));
}

std::optional<TowerFile> FindInTextModel(const GgufFile& file, const KindNames& names) {
  if (file.FindTensor(names.projector) == nullptr) return std::nullopt;
  TowerFile tower{.file = &file,
                  .prefix = fmt::format("{}.{}.", kGemma4Architecture, names.key),
                  .ollama = true};
  tower.unified = names.marker.empty() ? file.FindTensor("a.conv1d.0.weight") == nullptr
                                       : file.FindTensor(names.marker) != nullptr;
  return tower;
}

}  // namespace

std::string_view ProjectorName(TowerKind kind, bool unified) {
  const KindNames& names = NamesOf(kind);
  return unified ? names.unified : names.encoder;
}

Result<std::optional<TowerFile>> FindTower(const GgufFile& file, TowerKind kind) {
  RL_ASSIGN_OR_RETURN(const std::string_view architecture, file.GetString("general.architecture"));
  if (architecture == kProjectorArchitecture) return FindInProjectorFile(file, NamesOf(kind));
  if (architecture == kGemma4Architecture) return FindInTextModel(file, NamesOf(kind));
  return std::optional<TowerFile>();
}

Result<const TensorInfo*> TowerTensor(const GgufFile& file, std::string_view name,
                                      std::string_view expected) {
  if (const TensorInfo* tensor = file.FindTensor(name)) return tensor;
  return MakeError(ErrorKind::kModelFile, "model.missing_tensor",
                   "tensor '{}' is missing, expected {}; is the file whole?", name, expected);
}

Result<int64_t> TowerNumber(const TowerFile& tower, std::string_view suffix, int64_t low,
                            int64_t high, std::optional<int64_t> otherwise) {
  const std::string key = tower.Key(suffix);
  int64_t value = 0;
  if (otherwise) {
    RL_ASSIGN_OR_RETURN(value, U32Or(*tower.file, key, *otherwise));
  } else {
    RL_ASSIGN_OR_RETURN(value, tower.file->GetU32(key));
  }
  RL_RETURN_IF_ERROR(InRange(fmt::format("key '{}'", key), value, low, high));
  return value;
}

Result<float> TowerEps(const TowerFile& tower) {
  constexpr float kEps = 1e-6F;
  const std::string key = tower.Key("attention.layer_norm_epsilon");
  RL_ASSIGN_OR_RETURN(const float eps, F32Or(*tower.file, key, kEps));
  RL_RETURN_IF_ERROR(InRange(fmt::format("key '{}'", key), eps, kMinRmsEps, kMaxRmsEps));
  return eps;
}

Status CheckProjection(const TowerFile& tower, std::string_view projector, int64_t text_width) {
  RL_ASSIGN_OR_RETURN(const TensorInfo* tensor,
                      TowerTensor(*tower.file, projector, "the projector of the tower"));
  RL_ASSIGN_OR_RETURN(const int64_t declared,
                      U32Or(*tower.file, tower.Key("projection_dim"), text_width));
  const bool fits = tensor->rank == 2 && std::cmp_equal(tensor->dims[1], text_width);
  if (declared == text_width && fits) return OkStatus();
  return MakeError(ErrorKind::kModelFile, "model.tower",
                   "the tower is for a text model of width {}, this one has width {}; use the "
                   "mmproj file of this size of the model",
                   declared == text_width ? static_cast<int64_t>(tensor->dims[1]) : declared,
                   text_width);
}

}  // namespace rullama::gemma4
