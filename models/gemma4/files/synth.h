// Writes a Gemma 4 model of given shapes with random weights: every tensor, type and metadata key
// that a converted and quantised file has, so that its speed and memory are those of the real
// thing. Thread safety: WriteSynthetic may run on several threads with different paths.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/gguf/gguf.h"
#include "models/gemma4/files/quant_mix.h"
#include "models/gemma4/graph/config.h"
#include "models/gemma4/graph/weights.h"

namespace rullama {

struct SyntheticOptions {
  QuantMix mix = {};
  uint64_t seed = 0;
  std::string name = {};                 // general.name
  const GgufFile* vocabulary = nullptr;  // tokenizer metadata is copied from here; null: made up
  int threads = 1;
  std::vector<std::filesystem::path> read = {};  // files that the output must not replace
  std::shared_ptr<const std::atomic<bool>> cancel = nullptr;            // null: never
  std::function<void(uint64_t done, uint64_t total)> on_progress = {};  // bytes
};

// The type of each tensor of a synthetic file, in the order of `specs`.
std::vector<DType> SyntheticTypes(const QuantMix& mix, std::span<const TensorSpec> specs,
                                  const Gemma4Config& config);

// Errors: synth.vocabulary (too small, or of another size than the config's), io.same_file,
// run.cancelled, gguf.* and io.* of the writer.
Status WriteSynthetic(const Gemma4Config& config, const SyntheticOptions& options,
                      const std::filesystem::path& path);

}  // namespace rullama
