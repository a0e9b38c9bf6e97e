#include "engine/media/model_towers.h"

#include <fmt/format.h>

#include <filesystem>
#include <span>
#include <utility>

namespace rullama {
namespace {

Result<ModelTowers> ReadFile(const std::filesystem::path& path, const std::string& name,
                             const Model& model, const HostHooks& hooks) {
  ModelTowers read{.file_name = name};
  // Its errors name the file.
  RL_ASSIGN_OR_RETURN(GgufFile opened, GgufFile::Open(path));
  read.file = std::make_unique<GgufFile>(std::move(opened));
  read.mapping = MappingNotice(hooks, read.file->bytes());
  auto towers = model.ReadTowers(*read.file);
  if (!towers) {
    return tl::unexpected(std::move(towers).error().WithContext(fmt::format("towers '{}'", name)));
  }
  read.towers = *std::move(towers);
  if (read.any()) return read;
  return MakeError(ErrorKind::kModelFile, "model.tower",
                   "'{}' has no image or audio tower, expected the mmproj file of the model", name);
}

// The towers in the model's own file or next to it, which may have none.
Result<ModelTowers> ReadOwn(const ModelFile& model_file, const Model& model,
                            const HostHooks& hooks) {
  if (model_file.ollama && model_file.ollama->projector) {
    const std::filesystem::path& path = *model_file.ollama->projector;
    return ReadFile(path, path.string(), model, hooks);
  }
  ModelTowers read;
  RL_ASSIGN_OR_RETURN(read.towers, model.ReadTowers(*model_file.file));
  if (read.any()) read.file_name = model_file.name;
  return read;
}

// A setting for pictures that the tower does not follow.
void WarnOfBudget(const Config& config, const Towers& towers, Notices& notices) {
  const auto asked = config.generation.image_tokens;
  if (!asked || !towers.picture) return;
  const std::span<const uint32_t> budgets = towers.picture->Budgets();
  if (budgets.size() > 1 || *asked == budgets.front()) return;
  notices.Warn(
      fmt::format("generation.image_tokens (--image-tokens) is {}, which has no effect: every "
                  "picture has {} tokens with this model",
                  *asked, budgets.front()));
}

std::string_view KindsOf(const Towers& towers) {
  if (!towers.sound) return "pictures";
  return towers.picture ? "pictures and sound" : "sound";
}

}  // namespace

Result<ModelTowers> ReadModelTowers(const Config& config, const ModelFile& model_file,
                                    const Model& model, const HostHooks& hooks, Notices& notices) {
  const bool takes_media = model.facts().media.taken;
  const auto& named = config.model.mmproj;
  if (named && !takes_media) {
    return MakeError(ErrorKind::kUsage, "model.media",
                     "'{}' is given for a model that takes text alone, expected one "
                     "that also takes pictures or sound; leave out --mmproj (model.mmproj)",
                     *named);
  }
  if (!takes_media) return ModelTowers();
  auto read = named ? ReadFile(*named, *named, model, hooks) : ReadOwn(model_file, model, hooks);
  if (!read && !named) {
    notices.Warn(fmt::format("the model takes no pictures and no sound: {}", read.error().message));
    return ModelTowers();
  }
  if (read && read->file) {
    notices.Note(fmt::format("{}: towers from '{}'", KindsOf(read->towers), read->file_name));
  }
  if (read) WarnOfBudget(config, read->towers, notices);
  return read;
}

}  // namespace rullama
