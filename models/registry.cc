#include "models/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "core/base/check.h"
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

bool Contains(std::span<const std::string_view> architectures, std::string_view name) {
  return std::ranges::find(architectures, name) != architectures.end();
}

// Null if no family has such assistants.
const ModelFamily* FindFamilyOfAssistants(const GgufFile& file) {
  const auto name = file.FindString("general.architecture");
  if (!name || !*name) return nullptr;
  const auto* const family = std::ranges::find_if(
      kFamilies, [&](const ModelFamily* f) { return Contains(f->assistants, **name); });
  return family == std::end(kFamilies) ? nullptr : *family;
}

// `width`: " and width 1536", if it is known.
tl::unexpected<Error> NotAModel(const ModelFamily& family, std::string_view width) {
  return MakeError(ErrorKind::kModelFile, "model.assistant",
                   "this is a drafter for a model of architecture '{}'{}, expected a model; use -m "
                   "MODEL --draft-model FILE, or drafts.model",
                   family.architectures.front(), width);
}

}  // namespace

std::span<const ModelFamily* const> ModelFamilies() { return kFamilies; }

Result<const ModelFamily*> FindFamily(std::string_view architecture) {
  for (const ModelFamily* family : kFamilies) {
    if (Contains(family->architectures, architecture)) return family;
    for (const UnsupportedArchitecture& other : family->unsupported) {
      if (other.name != architecture) continue;
      return MakeError(ErrorKind::kModelFile, "model.unsupported",
                       "found architecture '{}', {}, which is not supported yet by this version",
                       architecture, other.what);
    }
    if (Contains(family->assistants, architecture)) return NotAModel(*family, "");
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
  if (const ModelFamily* family = FindFamilyOfAssistants(file)) {
    const auto facts = family->describe_assistant(file, AssistantOrigin::kFound);
    return NotAModel(*family, facts ? fmt::format(" and width {}", facts->target_width) : "");
  }
  RL_ASSIGN_OR_RETURN(const std::string_view name, file.GetString("general.architecture"));
  return FindFamily(name);
}

Result<Towers> ReadTowers(const GgufFile& file) {
  Result<Towers> unread = Towers();
  for (const ModelFamily* family : kFamilies) {
    if (family->read_towers == nullptr) continue;
    Result<Towers> towers = family->read_towers(file);
    if (towers && (towers->picture || towers->sound)) return towers;
    // They are towers of another family.
    const bool foreign = !towers && towers.error().id == "model.projector";
    if (!towers && !foreign) return towers;
    if (foreign && unread) unread = std::move(towers);
  }
  return unread;
}

bool IsAssistant(const GgufFile& file) { return FindFamilyOfAssistants(file) != nullptr; }

Result<AssistantFacts> DescribeAssistant(const GgufFile& file) {
  const ModelFamily* family = FindFamilyOfAssistants(file);
  RL_CHECK(family != nullptr);
  return family->describe_assistant(file, AssistantOrigin::kNamed);
}

Result<std::unique_ptr<Model>> OpenModel(const GgufFile& file) {
  RL_ASSIGN_OR_RETURN(const ModelFamily* family, FamilyOf(file));
  return family->open(file);
}

}  // namespace rullama
