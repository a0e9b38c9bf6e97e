// Opening the model a configuration names: a GGUF file, or a model that Ollama has downloaded.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "core/base/status.h"
#include "core/config/layered_config.h"
#include "core/gguf/gguf.h"
#include "core/ollama/store.h"
#include "core/tokenizer/tokenizer.h"

namespace rullama {

// Movable; views of the file stay valid. Thread safety: immutable after opening.
struct ModelFile {
  std::string name;  // as the user would recognise it
  std::unique_ptr<GgufFile> file;
  std::optional<OllamaModel> ollama;  // if it came from Ollama's store
};

// Whether a word can be the file or the Ollama name of a model.
bool MayNameModel(const std::string& word);

// Errors: usage.model if `path` is empty; model.adapter for the folder of one; gguf.*, store.*
// (kModelFile), io.* (kIo), each with the name of the file.
Result<ModelFile> OpenModelFile(const std::optional<std::string>& path);

// Makes the settings that the author recommends in Ollama's store part of the configuration, with a
// lower precedence than YAML.
Status ApplyOllamaParams(const ModelFile& model, LayeredConfig& config);

Result<std::shared_ptr<const Tokenizer>> MakeTokenizer(const GgufFile& file);

}  // namespace rullama
