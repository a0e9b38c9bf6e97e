// Removes a model from an Ollama store. Thread safety: a function of its arguments and the files.
#pragma once

#include <filesystem>

#include "core/ollama/name.h"
#include "downloads/pull_plan.h"

namespace rullama::downloads {

// Removes the manifest, then the blobs that no other manifest of the store names, then the folders
// that are empty. If another manifest cannot be read, blobs stay, and `hooks.note` says so. Errors:
// rm.not_found, file.write, run.cancelled while another program downloads one of the blobs.
Status RemoveFromOllamaStore(const OllamaName& name, const std::filesystem::path& store,
                             const PullHooks& hooks);

}  // namespace rullama::downloads
