// Merges low-rank adapters into a model file: each adapted weight W becomes W + sum of scale B A.
//
// Metadata, the order of tensors and all other tensors stay byte for byte. Tensors stream through
// in pieces, so memory does not grow with the model. The bytes depend on the inputs alone, not on
// the number of threads. Thread safety: several calls may run at once with different outputs.
#pragma once

#include <rullama/sdk/dtype.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/gguf/gguf.h"
#include "models/common/adapter.h"

namespace rullama {

struct MergeOptions {
  std::optional<DType> type = {};   // of merged tensors; without it, each keeps its own
  std::optional<DType> least = {};  // of merged tensors that have fewer bits a value and no `type`
  int threads = 1;
  std::shared_ptr<const std::atomic<bool>> cancel = nullptr;            // null: never
  std::function<void(uint64_t done, uint64_t total)> on_progress = {};  // elements
};

// A merged tensor and what its type cost in precision. Both norms are relative L2 norms.
struct MergedTensor {
  std::string name;
  DType type = DType::kF32;
  double error = 0;   // of the stored weight against W + sum of scale B A, over the latter's norm
  double change = 0;  // of the sum of scale B A, over the same norm

  // Whether rounding takes more than half as much as the adapters add.
  [[nodiscard]] bool loses_change() const { return error > change / 2; }
};

// Writes `input` with the adapters merged to `path`. Returns what was merged, in the order of the
// file. Errors: adapter.merge_type (kUsage: a tensor keeps a type that cannot be written);
// adapter.unknown_tensor and adapter.shape (kModelFile: the adapter is of another file);
// gguf.quantize_value for sums that are not finite or too large for the type; io.same_file if
// `path` is the input or a file of an adapter; run.cancelled; gguf.* and io.* of reading and
// writing.
Result<std::vector<MergedTensor>> MergeAdapters(const GgufFile& input,
                                                std::span<const ScaledAdapter> adapters,
                                                const MergeOptions& options,
                                                const std::filesystem::path& path);

// The same without a file: what merging would cost.
Result<std::vector<MergedTensor>> MeasureMerge(const GgufFile& input,
                                               std::span<const ScaledAdapter> adapters,
                                               const MergeOptions& options);

}  // namespace rullama
