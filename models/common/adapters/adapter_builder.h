// Collects the tensors of an adapter's file under the names of the model's table and checks that
// they make an adapter of that model. Internal to models/common/adapters. Not thread-safe.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/common/adapters/adapter.h"

namespace rullama::adapters {

class AdapterBuilder {
 public:
  AdapterBuilder(const AdapterTarget& target, std::string path);

  enum class Half { kA, kB };
  struct Part {
    std::string name;            // in the file, for messages
    std::string module;          // in the file: what the configuration's patterns mean
    std::vector<int64_t> shape;  // numpy order: A [rank, in], B [out, rank]; experts in front
    std::vector<float> values;
  };
  // Adds half of the adapter of `tensor`, a name of the table.
  Status Add(const std::string& tensor, Half half, Part part);

  // Passes over a tensor of an image or audio tower; a warning names it.
  void LeaveOut(const std::string& name) { towers_.push_back(name); }

  // The weight with a name of the table; error if there is none, or if it takes no adapter.
  [[nodiscard]] Result<const TensorSpec*> Find(const std::string& tensor,
                                               std::string_view name) const;

  // Returns the factor of B (A x) of a weight with this module and rank.
  using ScaleOf = std::function<Result<double>(std::string_view module, int64_t rank)>;
  Result<Adapter> Finish(const ScaleOf& scale_of) &&;

 private:
  struct Parts {
    const Part* Find(Half half) const;
    std::map<Half, Part> halves;
  };
  Result<AdapterWeight> Join(const std::string& tensor, Parts& parts, const ScaleOf& scale_of);

  std::map<std::string, TensorSpec, std::less<>> table_;
  std::map<std::string, Parts> parts_;
  std::vector<std::string> unused_;
  std::vector<std::string> towers_;
  Adapter adapter_;
};

// The tensor of the table that a module of Hugging Face's implementation stands for, such as
// model.layers.3.self_attn.q_proj; experts is the module "model.layers.N.experts".
// Errors: adapter.unsupported for embeddings, adapter.unknown_tensor.
struct ModuleTarget {
  std::string tensor;  // empty for experts
  int64_t layer = -1;
  bool experts = false;
};
// Whether a module belongs to an image or audio tower.
bool IsInTower(std::string_view module);
Result<ModuleTarget> TargetOfModule(std::string_view module, std::string_view tensor);

// The module of a tensor of the table, without the prefix of the layers: layers.3.self_attn.q_proj.
// Error adapter.write (kUsage) for tensors without one.
Result<std::string> ModuleOfTensor(std::string_view tensor);

Result<Adapter> ReadGgufAdapter(const std::string& path, const AdapterTarget& target);
Result<Adapter> ReadSafetensorsAdapter(const std::string& path, const std::string& config_path,
                                       const AdapterTarget& target);

}  // namespace rullama::adapters
