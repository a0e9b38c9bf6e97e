#include "engine/loading/model_file.h"

#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "core/config/nearest_key.h"
#include "core/config/value_codec.h"
#include "core/ollama/list.h"
#include "core/tokenizer/vocabulary_from_gguf.h"

namespace rullama {
namespace {

// A hint that names the models in the store and the one that was probably meant; empty if the store
// has none.
std::string StoreHint(std::string_view wanted, const OllamaStoreOptions& options) {
  constexpr size_t kMaxShown = 8;
  const auto models = ListOllamaModels(options);
  const auto parsed = ParseOllamaName(wanted);
  if (!models || models->empty() || !parsed) return {};
  std::vector<std::string> names;
  std::string same_model;  // with another tag
  for (const OllamaEntry& entry : *models) {
    names.push_back(entry.name.ToString());
    if (same_model.empty() && entry.name.model == parsed->model) same_model = names.back();
  }
  std::string meant = NearestName(parsed->ToString(), names);
  if (meant.empty()) meant = same_model;
  const bool all = names.size() <= kMaxShown;
  if (!all) names.resize(kMaxShown);
  return fmt::format("; {}the store has: {}{}",
                     meant.empty() ? "" : fmt::format("did you mean '{}'? ", meant),
                     fmt::join(names, ", "), all ? "" : ", ... (see rullama list)");
}

Result<OllamaModel> FindInStore(const std::string& name) {
  const OllamaStoreOptions options = OllamaStoreOptions::FromEnvironment();
  auto model = ResolveOllamaModel(name, options);
  if (!model && model.error().id == "store.not_found") {
    model.error().message += StoreHint(name, options);
  }
  return model;
}

}  // namespace

bool MayNameModel(const std::string& word) {
  std::error_code ignored;
  return LooksLikeModelFile(word) || LooksLikeOllamaName(word) ||
         std::filesystem::exists(word, ignored);
}

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
    RL_ASSIGN_OR_RETURN(model.ollama, FindInStore(*path));
    file = model.ollama->model;
  }
  for (const char* name : {"adapter_config.json", "adapter_model.safetensors"}) {
    if (!std::filesystem::exists(file / name, ignored)) continue;
    return MakeError(ErrorKind::kModelFile, "model.adapter",
                     "'{}' is the folder of a LoRA adapter, expected a model; use -m MODEL --lora "
                     "FOLDER, or model.adapters",
                     *path);
  }
  // Its errors name the file.
  RL_ASSIGN_OR_RETURN(GgufFile opened, GgufFile::Open(file));
  model.file = std::make_unique<GgufFile>(std::move(opened));
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
  RL_RETURN_IF_ERROR(set("generation.system", model.ollama->system));
  if (!params.stop.empty()) {
    RL_RETURN_IF_ERROR(
        config.SetList("generation.stop", params.stop, Origin::kModelFile, "Ollama's parameters"));
  }
  const std::vector<std::string> adapters(model.ollama->adapters.begin(),
                                          model.ollama->adapters.end());
  if (adapters.empty()) return OkStatus();
  return config.SetList("model.adapters", adapters, Origin::kModelFile, "Ollama's store");
}

Result<std::shared_ptr<const Tokenizer>> MakeTokenizer(const GgufFile& file) {
  RL_ASSIGN_OR_RETURN(VocabularyData vocabulary, VocabularyFromGguf(file));
  return Tokenizer::Build(std::move(vocabulary));
}

}  // namespace rullama
