// Writes model files of random weights: every tensor, type and metadata key that a converted and
// quantised file has, so that their speed and memory are those of the real thing. The family says
// which these are. Thread safety: files may be written on several threads, with different paths.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/gguf/gguf_writer.h"
#include "models/common/family.h"
#include "models/common/graph/tensor_table.h"

namespace rullama {

struct SyntheticFile {
  std::string_view architecture;         // general.architecture
  std::string_view type = "model";       // general.type
  uint32_t file_type = 0;                // general.file_type
  std::vector<TensorSpec> tensors = {};  // those of the file, in its order
  std::vector<DType> dtypes = {};        // of each of them; vectors are f32
  // Hyperparameters and tokenizer.
  std::function<Status(GgufWriter&)> write_metadata;
  // The values of a vector; empty: near 1, as those of norms.
  std::function<std::vector<float>(const TensorSpec&)> vector_values = {};
};

// The type of each tensor of a text model's file, in the order of `specs`. `experts`: 0 for none.
std::vector<DType> SyntheticTypes(const QuantMix& mix, std::span<const TensorSpec> specs,
                                  int64_t layers, int64_t experts);

// Errors: io.same_file, run.cancelled, gguf.* and io.* of the writer, those of write_metadata.
Status WriteSyntheticFile(const SyntheticFile& content, const SyntheticOptions& options,
                          const std::filesystem::path& path);

}  // namespace rullama
