// The families of models that rullama runs, found by the `general.architecture` of a file. A new
// family is a folder next to models/gemma4 and a row of the table in registry.cc.
//
// Thread safety: pure functions on constant data.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "core/base/status.h"
#include "core/gguf/gguf.h"
#include "models/common/family.h"

namespace rullama {

// All families; the first one is what a command uses that was told no architecture.
[[nodiscard]] std::span<const ModelFamily* const> ModelFamilies();

// The family of an architecture. Errors (kModelFile): model.arch (no family has it),
// model.unsupported (a family knows it, but this version does not run it), model.assistant (of an
// assistant, which is not a model).
Result<const ModelFamily*> FindFamily(std::string_view architecture);

// The family of a file. Errors: those of FindFamily; gguf.key_* if the file names no architecture.
Result<const ModelFamily*> FamilyOf(const GgufFile& file);

// The towers of any file: an mmproj file, or a model with towers. Errors: those of
// ModelFamily::read_towers.
Result<Towers> ReadTowers(const GgufFile& file);

// Whether a file is an assistant, by its metadata.
[[nodiscard]] bool IsAssistant(const GgufFile& file);

// What such a file is, whatever model it was made for. Errors: those of
// ModelFamily::describe_assistant.
Result<AssistantFacts> DescribeAssistant(const GgufFile& file);

// Opens the model of a file. Errors: those of FamilyOf and ModelFamily::open.
Result<std::unique_ptr<Model>> OpenModel(const GgufFile& file);

}  // namespace rullama
