// A model that was opened and checked, before any device is touched.
//
// Thread safety: immutable once loaded.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/config/layered_config.h"
#include "core/tokenizer/tokenizer.h"
#include "engine/host_hooks.h"
#include "engine/loading/mapping_notice.h"
#include "engine/loading/model_file.h"
#include "engine/media/model_towers.h"
#include "models/common/model.h"

namespace rullama {

// Tokens per sequence unless the user asks for more: the whole context of a large model would need
// gigabytes of cache that most conversations never touch.
inline constexpr int64_t kDefaultCapacity = 8192;

// How the adapters of a model are part of its graphs.
enum class AdapterUse : uint8_t {
  kForAll,  // all rows have them, with the factors of the configuration
  kByRow,   // each row chooses, unless the model or one of its adapters cannot do that
};

struct LoadedModel {
  std::chrono::steady_clock::time_point started;  // when loading began
  LayeredConfig layers;
  ModelFile file;
  MappingNotice mapping;  // of the file
  std::unique_ptr<const Model> model;
  ModelAdapters adapters;                   // those that all rows have
  RowAdapters row_adapters;                 // those among which rows choose
  std::vector<AdapterFacts> adapter_facts;  // of all of them
  ModelTowers towers;
  std::shared_ptr<const Tokenizer> tokenizer;

  [[nodiscard]] const Config& config() const { return layers.values(); }
  [[nodiscard]] const ModelFacts& facts() const { return model->facts(); }
  // The file whose tensors the towers are.
  [[nodiscard]] const GgufFile& tower_file() const {
    return towers.file ? *towers.file : *file.file;
  }
  // Whether requests may have media of a kind: there is a tower for them and the model takes them.
  [[nodiscard]] bool Takes(MediaKind kind) const;
  // Tokens per slot: as configured, or the default within the model's limit.
  [[nodiscard]] int64_t capacity() const;
};

// Opens the model that a finished configuration names, as far as its header tells: all but adapters
// and tokenizer, which are null. Cheap; errors and notices are those of LoadModel about that.
Result<LoadedModel> OpenModelHeader(LayeredConfig layers, const HostHooks& hooks, Notices& notices);

// Opens the model that a finished configuration names. Warnings (unusual tensors, replaced
// settings) go to `notices`. Errors: config.*, gguf.*, store.*, model.*, adapter.*, safetensors.*,
// tokenizer.*, io.*.
Result<LoadedModel> LoadModel(LayeredConfig layers, const HostHooks& hooks, Notices& notices,
                              AdapterUse use = AdapterUse::kForAll);

// The adapters that the configuration names (model.adapters), all or none. Their descriptions go to
// `notices`. Errors: adapter.*, safetensors.*, gguf.*, io.*.
Result<std::vector<ScaledAdapter>> ReadAdapters(const Config& config, const Model& model,
                                                Notices& notices);

// Number formats of the KV cache: as configured; `auto` is f16, for the reference backend f32.
CacheTypes KvDtypeFor(const Config& config, const std::string& backend);

}  // namespace rullama
