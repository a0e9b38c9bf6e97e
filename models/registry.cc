#include "models/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "models/gemma3/family.h"
#include "models/gemma4/family.h"

namespace rullama {
namespace {

constexpr const ModelFamily* kFamilies[] = {
    &kGemma4Family,
    &kGemma3Family,
};

// "'gemma4' or 'diffusion-gemma'"
std::string ArchitectureNames() {
  std::string names;
  for (const ModelFamily* family : kFamilies) {
    for (const std::string_view name : family->architectures) {
      names += fmt::format("{}'{}'", names.empty() ? "" : " or ", name);
    }
  }
  return names;
}

}  // namespace

std::span<const ModelFamily* const> ModelFamilies() { return kFamilies; }

Result<const ModelFamily*> FindFamily(std::string_view architecture) {
  for (const ModelFamily* family : kFamilies) {
    if (std::ranges::find(family->architectures, architecture) != family->architectures.end()) {
      return family;
    }
    for (const UnsupportedArchitecture& other : family->unsupported) {
      if (other.name != architecture) continue;
      return MakeError(ErrorKind::kModelFile, "model.unsupported",
                       "found architecture '{}', {}, which is not supported yet by this version; "
                       "give the model it was made for",
                       architecture, other.what);
    }
  }
  const std::string_view hint =
      architecture == kProjectorArchitecture
          ? "; this file has towers for pictures or sound, give the text model "
            "with -m and this file with --mmproj"
          : "";
  return MakeError(ErrorKind::kModelFile, "model.arch", "found architecture '{}', expected {}{}",
                   architecture, ArchitectureNames(), hint);
}

Result<const ModelFamily*> FamilyOf(const GgufFile& file) {
  if (const auto type = file.FindString("general.type"); type && *type == "adapter") {
    return MakeError(ErrorKind::kModelFile, "model.adapter",
                     "this is a LoRA adapter, expected a model; use -m MODEL --lora FILE, or "
                     "model.adapters");
  }
  RL_ASSIGN_OR_RETURN(const std::string_view name, file.GetString("general.architecture"));
  return FindFamily(name);
}

Result<Towers> ReadTowers(const GgufFile& file) {
  for (const ModelFamily* family : kFamilies) {
    if (family->read_towers == nullptr) continue;
    RL_ASSIGN_OR_RETURN(Towers towers, family->read_towers(file));
    if (towers.picture || towers.sound) return towers;
  }
  return Towers();
}

Result<std::unique_ptr<Model>> OpenModel(const GgufFile& file) {
  RL_ASSIGN_OR_RETURN(const ModelFamily* family, FamilyOf(file));
  return family->open(file);
}

}  // namespace rullama
