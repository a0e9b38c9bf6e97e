// The names in an Ollama store. Names come from folders, so listing reads no model and no JSON.
// Thread safety: pure functions of their arguments and the file system.
#pragma once

#include <ctime>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/ollama/store.h"

namespace rullama {

struct OllamaEntry {
  OllamaName name;
  std::time_t modified = 0;  // when the manifest was written, that is, when the model was pulled
};

// The models of all roots that exist, newest first; of models in several roots only the one that
// ResolveOllamaModel finds. Files with other names than those of models are passed over. Error
// io.permission (kIo) if a store cannot be read and no other one has a model.
Result<std::vector<OllamaEntry>> ListOllamaModels(const OllamaStoreOptions& options);

}  // namespace rullama
