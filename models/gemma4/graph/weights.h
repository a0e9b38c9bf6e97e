// The tensors of a Gemma 4 text model: what a file must have, what it may have, and which tensor of
// a file stands behind each name the model uses.
//
// Thread safety: immutable after construction. Errors: kind kModelFile, ids model.*.
#pragma once

#include <rullama/sdk/dtype.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/gguf/gguf.h"
#include "models/gemma4/graph/config.h"

namespace rullama {

enum class Presence : uint8_t {
  kRequired,
  kUsual,     // every current converter writes it; a model without it runs
  kOptional,  // seldom there
  kUnused,    // may be there and is never read: K and V of layers that share a cache
};

// One tensor a file is expected to have.
struct TensorSpec {
  std::string name;                       // llama.cpp's spelling; the name the model uses
  std::vector<std::string> alternatives;  // other converters' spellings
  std::vector<int64_t> dims;              // numpy order: [rows, columns] or [n]
  Presence presence = Presence::kRequired;

  // Vectors (norm weights, scales) are f32 and used as they are; matrices may be of any type.
  [[nodiscard]] bool is_vector() const { return dims.size() == 1; }
};

// Every tensor of a model with these hyperparameters, in the order of the forward pass.
std::vector<TensorSpec> ExpectedTensors(const Gemma4Config& config);

// A tensor of a model file.
struct WeightBinding {
  std::string tensor;  // its name in the file
  DType dtype = DType::kF32;
  std::vector<int64_t> dims;  // numpy order
};

class Gemma4Weights {
 public:
  struct CheckOptions {
    bool strict = false;  // unknown tensors are an error instead of a warning
  };

  // Checks the tensors of `file` against the table. Towers (v.*, a.*, mm.*) are accepted and left
  // alone. Errors: model.missing_tensor (the first five named, with a count), model.tensor_shape,
  // model.tensor_dtype, model.layer_scale (0, NaN, infinite, or missing on some layers only),
  // model.unsupported (scale sidecars of NVFP4 weights), model.unknown_tensor (strict only).
  static Result<Gemma4Weights> FromFile(const Gemma4Config& config, const GgufFile& file,
                                        CheckOptions options);
  static Result<Gemma4Weights> FromFile(const Gemma4Config& config, const GgufFile& file) {
    return FromFile(config, file, CheckOptions());
  }

  // The tensors of a model that is yet to be written (`rullama synth`): required and usual ones,
  // matrices with the type that `dtype_of` gives them.
  static Gemma4Weights Synthetic(const Gemma4Config& config,
                                 const std::function<DType(const TensorSpec&)>& dtype_of);

  // The tensor behind a name of the table, or null if the model does without.
  [[nodiscard]] const WeightBinding* Find(std::string_view name) const;

  // Warnings for the user about ignored tensors and unusual properties, one sentence each.
  [[nodiscard]] const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  std::map<std::string, WeightBinding, std::less<>> bindings_;
  std::vector<std::string> warnings_;
};

}  // namespace rullama
