#include "cli/model_file.h"

#include <filesystem>
#include <utility>

#include "cli/signals.h"
#include "core/config/value_codec.h"
#include "core/tokenizer/vocabulary_from_gguf.h"

namespace rullama::cli {

Result<ModelFile> OpenModelFile(const std::optional<std::string>& path) {
  if (!path || path->empty()) {
    return MakeError(ErrorKind::kUsage, "usage.model",
                     "no model is named; give one with -m FILE, -m NAME or --config FILE");
  }
  ModelFile model;
  model.name = *path;
  std::filesystem::path file = *path;
  std::error_code ignored;
  // A file without the usual suffix is a file all the same.
  if (!LooksLikeModelFile(*path) && !std::filesystem::exists(file, ignored)) {
    RL_ASSIGN_OR_RETURN(model.ollama,
                        ResolveOllamaModel(*path, OllamaStoreOptions::FromEnvironment()));
    file = model.ollama->model;
  }
  // Its errors name the file.
  RL_ASSIGN_OR_RETURN(GgufFile opened, GgufFile::Open(file));
  model.file = std::make_unique<GgufFile>(std::move(opened));
  WatchMapping(model.file->bytes());
  return model;
}

Status ApplyOllamaParams(const ModelFile& model, LayeredConfig& config) {
  if (!model.ollama) return OkStatus();
  const OllamaParams& params = model.ollama->params;
  const auto set = [&config](const char* path, const auto& value) -> Status {
    if (!value) return OkStatus();
    return config.Set(path, fmt::format("{}", *value), Origin::kModelFile, "Ollama's parameters");
  };
  RL_RETURN_IF_ERROR(set("sampler.temperature", params.temperature));
  RL_RETURN_IF_ERROR(set("sampler.top_p", params.top_p));
  RL_RETURN_IF_ERROR(set("sampler.min_p", params.min_p));
  RL_RETURN_IF_ERROR(set("sampler.top_k", params.top_k));
  if (params.stop.empty()) return OkStatus();
  return config.SetList("generation.stop", params.stop, Origin::kModelFile, "Ollama's parameters");
}

Result<std::shared_ptr<const Tokenizer>> MakeTokenizer(const GgufFile& file) {
  RL_ASSIGN_OR_RETURN(VocabularyData vocabulary, VocabularyFromGguf(file));
  return Tokenizer::Build(std::move(vocabulary));
}

}  // namespace rullama::cli
