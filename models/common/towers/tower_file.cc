#include "models/common/towers/tower_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "models/common/graph/hparams.h"
#include "models/common/towers.h"

namespace rullama {
namespace {

// "'gemma4v' or 'gemma4uv'"
std::string QuotedNames(std::span<const std::string_view> names) {
  std::string text;
  for (const std::string_view name : names) {
    text += fmt::format("{}'{}'", text.empty() ? "" : " or ", name);
  }
  return text;
}

}  // namespace

Result<bool> IsProjectorFile(const GgufFile& file) {
  RL_ASSIGN_OR_RETURN(const std::string_view architecture, file.GetString("general.architecture"));
  return architecture == kProjectorArchitecture;
}

Result<std::optional<TowerFile>> FindInProjectorFile(const GgufFile& file,
                                                     const ProjectorNames& names) {
  RL_ASSIGN_OR_RETURN(const auto has, file.FindBool(names.has));
  if (!has.value_or(false)) return std::optional<TowerFile>();
  TowerFile tower{.file = &file, .prefix = fmt::format("clip.{}.", names.key)};
  RL_ASSIGN_OR_RETURN(auto projector, file.FindString(tower.Key("projector_type")));
  if (!projector) {
    RL_ASSIGN_OR_RETURN(projector, file.FindString("clip.projector_type"));
  }
  const std::string_view found = projector.value_or("missing");
  const auto known = std::ranges::find(names.projectors, found);
  if (known == names.projectors.end()) {
    return MakeError(ErrorKind::kModelFile, "model.projector",
                     "the {} projector of the file is '{}', expected {}; use the mmproj file that "
                     "belongs to the {} model",
                     names.key, found, QuotedNames(names.projectors), names.family);
  }
  tower.projector = *known;
  return std::optional(std::move(tower));
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

Status CheckProjection(const TowerFile& tower, const Projector& projector, int64_t text_width) {
  RL_ASSIGN_OR_RETURN(const TensorInfo* tensor,
                      TowerTensor(*tower.file, projector.tensor, "the projector of the tower"));
  RL_ASSIGN_OR_RETURN(const int64_t declared,
                      U32Or(*tower.file, tower.Key("projection_dim"), text_width));
  const uint64_t found = tensor->dims[projector.axis];
  const bool fits = tensor->rank == 2 && std::cmp_equal(found, text_width);
  if (declared == text_width && fits) return OkStatus();
  return MakeError(ErrorKind::kModelFile, "model.tower",
                   "the tower is for a text model of width {}, this one has width {}; use the "
                   "mmproj file of this size of the model",
                   declared == text_width ? static_cast<int64_t>(found) : declared, text_width);
}

Result<std::optional<int64_t>> ProjectedWidth(const GgufFile& file, const Projector& projector) {
  const TensorInfo* tensor = file.FindTensor(projector.tensor);
  if (tensor == nullptr) return std::optional<int64_t>();
  const uint64_t width = tensor->dims[projector.axis];
  if (tensor->rank == 2 && std::cmp_less_equal(width, kMaxWidth)) {
    return std::optional(static_cast<int64_t>(width));
  }
  return MakeError(ErrorKind::kModelFile, "model.tensor_shape",
                   "tensor '{}' has {} dimensions and makes rows of {} numbers, expected 2 and at "
                   "most {}",
                   projector.tensor, tensor->rank, width, kMaxWidth);
}

}  // namespace rullama
