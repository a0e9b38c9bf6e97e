// A model that was opened and checked, before any device is touched.
//
// Thread safety: immutable once loaded.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/config/layered_config.h"
#include "core/tokenizer/tokenizer.h"
#include "engine/host_hooks.h"
#include "engine/model_file.h"
#include "models/common/model.h"

namespace rullama {

// Tokens per sequence unless the user asks for more: the whole context of a large model would need
// gigabytes of cache that most conversations never touch.
inline constexpr int64_t kDefaultCapacity = 8192;

// Tells HostHooks::on_mapping of a mapping, and at its own end that the mapping goes.
class MappingNotice {
 public:
  MappingNotice() = default;
  MappingNotice(const HostHooks& hooks, std::span<const std::byte> mapping)
      : on_mapping_(hooks.on_mapping), mapping_(mapping) {
    if (on_mapping_) on_mapping_(mapping_, true);
  }
  MappingNotice(MappingNotice&& other) noexcept
      : on_mapping_(std::exchange(other.on_mapping_, nullptr)), mapping_(other.mapping_) {}
  MappingNotice& operator=(MappingNotice&& other) noexcept {
    std::swap(on_mapping_, other.on_mapping_);
    std::swap(mapping_, other.mapping_);
    return *this;
  }
  MappingNotice(const MappingNotice&) = delete;
  MappingNotice& operator=(const MappingNotice&) = delete;
  ~MappingNotice() {
    if (on_mapping_) on_mapping_(mapping_, false);
  }

 private:
  std::function<void(std::span<const std::byte>, bool)> on_mapping_;
  std::span<const std::byte> mapping_;
};

struct LoadedModel {
  std::chrono::steady_clock::time_point started;  // when loading began
  LayeredConfig layers;
  ModelFile file;
  MappingNotice mapping;  // of the file
  std::unique_ptr<const Model> model;
  ModelAdapters adapters;
  std::shared_ptr<const Tokenizer> tokenizer;

  [[nodiscard]] const Config& config() const { return layers.values(); }
  [[nodiscard]] const ModelFacts& facts() const { return model->facts(); }
  // Tokens per slot: as configured, or the default within the model's limit.
  [[nodiscard]] int64_t capacity() const;
};

// Opens the model that a finished configuration names. Warnings (unusual tensors, replaced
// settings) go to `notices`. Errors: config.*, gguf.*, store.*, model.*, adapter.*, safetensors.*,
// tokenizer.*, io.*.
Result<LoadedModel> LoadModel(LayeredConfig layers, const HostHooks& hooks, Notices& notices);

// The adapters that the configuration names (model.adapters), all or none; what they are goes to
// `notices`. Errors: adapter.*, safetensors.*, gguf.*, io.*.
Result<std::vector<ScaledAdapter>> ReadAdapters(const Config& config, const Model& model,
                                                Notices& notices);

// Number format of the KV cache: as configured; `auto` is f16, for the reference backend f32.
DType KvDtypeFor(const Config& config, const std::string& backend);

}  // namespace rullama
