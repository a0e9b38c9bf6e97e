#include "engine/loading/loaded_model.h"

#include <algorithm>
#include <utility>

#include "models/registry.h"

namespace rullama {
namespace {

tl::unexpected<Error> InFile(const LoadedModel& model, Error error) {
  return tl::unexpected(std::move(error).WithContext(fmt::format("model '{}'", model.file.name)));
}

// The type that a setting names; `otherwise` where it leaves the choice.
DType DTypeOf(KvDtype setting, DType otherwise) {
  switch (setting) {
    case KvDtype::kF32:
      return DType::kF32;
    case KvDtype::kF16:
      return DType::kF16;
    case KvDtype::kBF16:
      return DType::kBF16;
    case KvDtype::kQ8_0:
      return DType::kQ8_0;
    case KvDtype::kQ4_0:
      return DType::kQ4_0;
    case KvDtype::kAuto:
      break;
  }
  return otherwise;
}

void TakeAdapters(std::vector<ScaledAdapter> adapters, AdapterUse use, Notices& notices,
                  LoadedModel& model) {
  const std::vector<AdapterSetting>& settings = model.config().model.adapters;
  for (size_t i = 0; i < adapters.size(); ++i) {
    model.adapter_facts.push_back(FactsOf(adapters[i]));
    model.adapter_facts.back().path = settings[i].path;
  }
  const bool predicts = !model.facts().denoises() && !model.facts().encodes();
  if (use == AdapterUse::kByRow && predicts && CanChoose(adapters)) {
    model.row_adapters = StackAdapters(std::move(adapters));
    return;
  }
  model.adapters = JoinAdapters(adapters);
  if (use != AdapterUse::kByRow || adapters.empty()) return;
  notices.Warn(predicts ? "an adapter is for experts, so all requests have the adapters as they "
                          "were loaded; --lora-init-without-apply has no effect"
                        : "all requests have the adapters as they were loaded: those of this model "
                          "cannot be chosen; --lora-init-without-apply has no effect");
}

}  // namespace

Result<std::vector<ScaledAdapter>> ReadAdapters(const Config& config, const Model& model,
                                                Notices& notices) {
  std::vector<ScaledAdapter> adapters;
  adapters.reserve(config.model.adapters.size());
  for (const AdapterSetting& setting : config.model.adapters) {
    RL_ASSIGN_OR_RETURN(Adapter adapter, model.ReadAdapter(setting.path));
    for (const std::string& warning : adapter.warnings) notices.Warn(warning);
    notices.Note(fmt::format("adapter '{}': {}{}", setting.path, adapter.Describe(),
                             setting.scale == 1 ? "" : fmt::format(", times {}", setting.scale)));
    adapters.push_back({std::move(adapter), setting.scale});
  }
  return adapters;
}

int64_t LoadedModel::capacity() const {
  const int64_t longest = facts().context_length;
  const int64_t chosen = config().context.capacity.value_or(std::min(longest, kDefaultCapacity));
  return chosen == 0 ? longest : chosen;
}

bool LoadedModel::Takes(MediaKind kind) const {
  const bool has_tower = kind == MediaKind::kPicture ? towers.towers.picture != nullptr
                                                     : towers.towers.sound != nullptr;
  return has_tower && facts().media.taken;
}

Result<LoadedModel> OpenModelHeader(LayeredConfig layers, const HostHooks& hooks,
                                    Notices& notices) {
  LoadedModel model;
  model.started = std::chrono::steady_clock::now();
  model.layers = std::move(layers);
  RL_ASSIGN_OR_RETURN(model.file, OpenModelFile(model.config().model.path));
  model.mapping = MappingNotice(hooks, model.file.file->bytes());
  RL_RETURN_IF_ERROR(ApplyOllamaParams(model.file, model.layers));
  for (const std::string& notice : model.layers.notices()) notices.Note(notice);
  auto opened = OpenModel(*model.file.file);
  if (!opened) return InFile(model, std::move(opened).error());
  model.model = *std::move(opened);
  for (const std::string& warning : model.model->warnings()) notices.Warn(warning);
  RL_RETURN_IF_ERROR(model.model->CheckAgainst(model.config().architecture));
  RL_ASSIGN_OR_RETURN(model.towers,
                      ReadModelTowers(model.config(), model.file, *model.model, hooks, notices));
  return model;
}

Result<LoadedModel> LoadModel(LayeredConfig layers, const HostHooks& hooks, Notices& notices,
                              AdapterUse use) {
  RL_ASSIGN_OR_RETURN(LoadedModel model, OpenModelHeader(std::move(layers), hooks, notices));
  RL_ASSIGN_OR_RETURN(auto adapters, ReadAdapters(model.config(), *model.model, notices));
  TakeAdapters(std::move(adapters), use, notices, model);
  auto tokenizer = MakeTokenizer(*model.file.file);
  if (!tokenizer) return InFile(model, std::move(tokenizer).error());
  model.tokenizer = *std::move(tokenizer);
  return model;
}

CacheTypes KvDtypeFor(const Config& config, const std::string& backend) {
  const DType own = backend == "reference" ? DType::kF32 : DType::kF16;
  const DType keys = DTypeOf(config.context.kv_dtype, own);
  return {keys, DTypeOf(config.context.v_dtype, keys)};
}

}  // namespace rullama
