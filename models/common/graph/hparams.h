// Numbers of a model from the metadata of its file, and checks of their ranges. Converters differ
// in whether a number that is the same for all layers is written once or per layer.
//
// Thread safety: pure functions. Errors: gguf.key_* for mistyped or missing keys; model.hparam for
// numbers out of range (kModelFile).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error_of.h"
#include "core/base/status.h"
#include "core/gguf/gguf.h"

namespace rullama {

// The key of a hyperparameter: they carry the name of the file's architecture.
[[nodiscard]] std::string HparamKey(const GgufFile& file, std::string_view suffix);

using BadHparam = ErrorOf<ErrorKind::kModelFile, "model.hparam">;

template <typename T>
Status InRange(std::string_view what, T value, T low, T high) {
  // Written so that NaN fails.
  if (value >= low && value <= high) return OkStatus();
  return BadHparam("{} is {}, expected {} to {}", what, value, low, high);
}

// A number that must be the same on all layers, written once or per layer.
Result<int64_t> UniformU32(const GgufFile& file, std::string_view key, size_t layers);
Result<float> F32Or(const GgufFile& file, std::string_view key, float otherwise);
Result<int64_t> U32Or(const GgufFile& file, std::string_view key, int64_t otherwise);

// Whether the file of an encoder says that rows see each other in both directions (or leaves it
// out) and that the mean of all rows is taken. Error model.hparam.
Status CheckPooling(const GgufFile& file);

// The number of tokens, and those that are never to be generated: distinct, ascending. Errors:
// model.missing_tensor (neither embeddings nor a tokenizer), model.vocabulary (they differ).
struct FileVocabulary {
  int64_t size = 0;
  std::vector<int32_t> suppress_tokens;
};
Result<FileVocabulary> ReadFileVocabulary(const GgufFile& file);
// Whether the suppressed tokens are in the vocabulary.
Status CheckSuppressed(const std::vector<int32_t>& suppress_tokens, int64_t vocabulary);

// The mean of all rows, in llama.cpp's enum llama_pooling_type.
inline constexpr int64_t kPoolingMean = 1;

// Limits far above every published size and small enough that products of four of these numbers
// stay inside 64 bits. Positions and token ids are 32-bit numbers in kernels.
inline constexpr int64_t kMaxLayers = 1024;  // bounds allocations per layer
inline constexpr int64_t kMaxWidth = 65536;
inline constexpr int64_t kMaxHeads = 1024;
inline constexpr int64_t kMaxHeadDim = 4096;
inline constexpr int64_t kMaxFfnWidth = int64_t{1} << 20;
inline constexpr int64_t kMaxContext = int64_t{1} << 24;
inline constexpr float kMinRmsEps = 1e-12F;
inline constexpr float kMaxRmsEps = 0.1F;
inline constexpr float kMaxRopeBase = 1e12F;

}  // namespace rullama
