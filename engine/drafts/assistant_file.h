// The file of the assistant of a model: a drafter that reads the model's own caches
// (models/common/assistant.h).
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/gguf/gguf.h"
#include "engine/host_hooks.h"
#include "engine/loading/mapping_notice.h"
#include "engine/loading/model_file.h"
#include "models/common/assistant.h"
#include "models/common/model.h"

namespace rullama {

// Movable. Thread safety: immutable once read.
struct AssistantFile {
  std::string name = {};  // as the user would recognise it
  std::unique_ptr<GgufFile> file = {};
  MappingNotice mapping = {};  // of that file
  std::unique_ptr<const Assistant> assistant = {};
  bool asked = false;  // the configuration names it, or drafts.mtp is true
};

// The files that may hold the assistant of a model that nobody named: the layer of Ollama's store,
// else files next to the model, or in a folder MTP there, whose names begin with mtp-, by name.
std::vector<std::filesystem::path> AssistantCandidates(const ModelFile& model);

// Opens the assistant of `model` that somebody named. Errors: those of GgufFile::Open and
// Model::ReadAssistant, with the name of the file; model.arch for a file that is not an assistant.
Result<AssistantFile> OpenAssistant(const std::filesystem::path& path, const Model& model,
                                    const HostHooks& hooks);

// The first of the candidates that fits the model; nothing if none does. Files that do not fit are
// notes.
std::optional<AssistantFile> FindAssistant(const ModelFile& file, const Model& model,
                                           const HostHooks& hooks, Notices& notices);

}  // namespace rullama
