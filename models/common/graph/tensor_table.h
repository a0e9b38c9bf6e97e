// The tensors of a network: what a file must have, what it may have, and which tensor of a file
// each name of the model stands for. Each family lists its own (TensorSpec); checking them is the
// same for all.
//
// Thread safety: immutable after construction. Errors: kind kModelFile, ids model.*.
#pragma once

#include <rullama/sdk/dtype.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/gguf/gguf.h"
#include "core/passes/scale_products.h"

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
  std::string in_file = {};               // the only name in the file, if that is another one
  std::vector<std::string> alternatives;  // other converters' spellings
  std::vector<int64_t> dims;              // numpy order: [rows, columns] or [n]
  Presence presence = Presence::kRequired;

  // Vectors (norm weights, scales) are f32 and used as they are; matrices may be of any type.
  [[nodiscard]] bool is_vector() const { return dims.size() == 1; }
};

// Collects the tensors of one layer, or of another part of a network whose names begin alike, under
// their full names.
class LayerTable {
 public:
  LayerTable(std::vector<TensorSpec>& specs, int64_t index);
  LayerTable(std::vector<TensorSpec>& specs, std::string prefix);

  // `name` and `alternatives` lack the prefix of the layer: "attn_q.weight".
  void Add(std::string_view name, std::vector<int64_t> dims,
           Presence presence = Presence::kRequired,
           std::initializer_list<std::string_view> alternatives = {});
  // A required tensor that the file calls `other` and that the model uses as `name`, a name that
  // the file may have given to another tensor.
  void AddRenamed(std::string_view name, std::vector<int64_t> dims, std::string_view other);
  // The gated feed-forward and the norms on both sides of it.
  void AddFeedForward(int64_t width, int64_t ffn_width);

 private:
  std::vector<TensorSpec>& specs_;
  std::string prefix_;
};

// A tensor of a model file.
struct WeightBinding {
  std::string tensor;  // its name in the file
  DType dtype = DType::kF32;
  std::vector<int64_t> dims;  // numpy order
};

class ModelWeights {
 public:
  using Bindings = std::map<std::string, WeightBinding, std::less<>>;

  struct CheckOptions {
    std::string_view network = {};  // for messages: "Gemma 4 text model"
    bool strict = false;            // unknown tensors are an error instead of a warning
    bool part = false;              // the file has other networks too, so none is unknown
    bool scales = false;            // whoever builds graphs heeds scales()
  };

  // Checks the tensors of `file` against the table. Towers (v.*, a.*, mm.*) are accepted and left
  // alone. Errors: model.missing_tensor (the first five named, with a count), model.tensor_shape,
  // model.tensor_dtype, model.unsupported (factors of weights that are not one number),
  // model.unknown_tensor (strict only).
  static Result<ModelWeights> FromFile(const std::vector<TensorSpec>& specs, const GgufFile& file,
                                       const CheckOptions& options);

  // The tensors of a model that is yet to be written (`rullama synth`): required and usual ones,
  // matrices with the type that `dtype_of` gives them.
  static ModelWeights Synthetic(const std::vector<TensorSpec>& specs,
                                const std::function<DType(const TensorSpec&)>& dtype_of);

  // Gives all tensors names that begin with `prefix`: those of a second file
  // (GgufWeights::AddFile).
  void PrefixTensors(std::string_view prefix);

  // The tensor with a name of the table, or null if the model does without.
  [[nodiscard]] const WeightBinding* Find(std::string_view name) const;
  // All tensors that were found, by their names of the table.
  [[nodiscard]] const Bindings& bindings() const { return bindings_; }

  // The factors that the file has for whole matrices, as those of NVFP4 have: tensors "X.scale" of
  // one number for "X.weight".
  [[nodiscard]] const std::vector<WeightScale>& scales() const { return scales_; }

  // Warnings for the user about ignored tensors and unusual properties, one sentence each.
  [[nodiscard]] const std::vector<std::string>& warnings() const { return warnings_; }

 protected:
  std::vector<std::string> warnings_;

 private:
  Status ReadScales(const GgufFile& file);

  Bindings bindings_;
  std::vector<WeightScale> scales_;
};

}  // namespace rullama
