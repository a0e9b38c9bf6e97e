// Quantises a model file: the same model with its matrices in smaller types.
//
// Metadata, alignment and the order of tensors stay; general.file_type and
// general.quantization_version say what was made. Tensors stream through in pieces, so memory does
// not grow with the model. The file appears under its name when it is complete, or not at all.
//
// The bytes depend on the input, the mix and the importance alone, not on the number of threads.
// Thread safety: QuantizeFile may run on several threads with different outputs.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string_view>

#include "core/base/status.h"
#include "core/gguf/gguf.h"
#include "models/quantize/importance.h"
#include "models/quantize/quant_mix.h"

namespace rullama {

// A tensor that was converted.
struct QuantizedTensor {
  std::string_view name;
  DType dtype;
  double error;  // the root of the mean squared error over that of the mean square
};

struct QuantizeOptions {
  QuantMix mix = {};
  bool copy = false;    // every tensor keeps its type, and `mix` is not read
  bool towers = false;  // `input` is an mmproj file (ChooseTowerTypes)
  // By which the errors of columns count; null: all the same. It outlives the call.
  const Importance* importance = nullptr;
  int threads = 1;
  std::shared_ptr<const std::atomic<bool>> cancel = nullptr;            // null: never
  std::function<void(uint64_t done, uint64_t total)> on_progress = {};  // elements
  // Called after each tensor that was converted; asking for it takes the time to decode them.
  std::function<void(const QuantizedTensor&)> on_tensor = {};
};

struct QuantizeReport {
  uint64_t bytes_before = 0;  // of tensor data
  uint64_t bytes_after = 0;
  std::map<DType, uint64_t> converted;  // tensors by their new type
  uint64_t copied = 0;                  // tensors
  // Converted tensors that the importance says nothing about, where there is one.
  uint64_t without_importance = 0;
  // The number of experts' matrices that the measured text never reached, in tensors that the
  // importance has.
  uint64_t unseen_experts = 0;
};

// `input` is of a family that rullama knows (models/registry.h), or has its towers: the rules for
// types go by the names of llama.cpp's tensors. Errors: quantize.source_type for tensors that are
// quantised already; imatrix.shape for an importance that has other columns than the tensor;
// io.same_file (kUsage) if `path` is the input; gguf.quantize_value with the tensor and element for
// weights that are not finite; run.cancelled; gguf.* and io.* of reading and writing
// (core/gguf/atomic_file.h).
Result<QuantizeReport> QuantizeFile(const GgufFile& input, const QuantizeOptions& options,
                                    const std::filesystem::path& path);

}  // namespace rullama
