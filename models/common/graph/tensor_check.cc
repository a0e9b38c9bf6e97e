// ModelWeights from a file: every way in which the tensors can differ from the table.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <set>
#include <string>
#include <utility>

#include "models/common/graph/tensor_table.h"

namespace rullama {
namespace {

constexpr size_t kNamedInMessages = 5;  // enough to recognise the pattern, short enough to read

// Tensors of other networks in the same file: image and audio towers and their projectors.
constexpr std::array<std::string_view, 5> kTowerPrefixes = {
    "v.", "a.", "mm.", "model.vision_tower.", "model.audio_tower."};

// Dims in the order of the file, as other tools print them.
std::string FileShape(const std::vector<int64_t>& dims) {
  return fmt::format("[{}]", fmt::join(dims.rbegin(), dims.rend(), ", "));
}

std::string FileShape(const TensorInfo& tensor) {
  return fmt::format("[{}]",
                     fmt::join(tensor.dims.begin(), tensor.dims.begin() + tensor.rank, ", "));
}

bool SameShape(const TensorInfo& tensor, const std::vector<int64_t>& dims) {
  for (size_t i = 0; i < tensor.dims.size(); ++i) {
    const int64_t expected = i < dims.size() ? dims[dims.size() - 1 - i] : 1;
    if (!std::in_range<int64_t>(tensor.dims[i]) ||
        static_cast<int64_t>(tensor.dims[i]) != expected) {
      return false;
    }
  }
  return true;
}

// Types that matmul and gather_rows read. The rest are integers and formats that only exist while
// computing.
bool IsWeightType(DType dtype) {
  switch (dtype) {
    case DType::kI8:
    case DType::kI16:
    case DType::kI32:
    case DType::kI64:
    case DType::kF64:
    case DType::kQ8_1:
    case DType::kQ8_K:
      return false;
    default:
      return true;
  }
}

const TensorInfo* FindSpec(const GgufFile& file, const TensorSpec& spec) {
  if (!spec.in_file.empty()) return file.FindTensor(spec.in_file);
  if (const TensorInfo* tensor = file.FindTensor(spec.name)) return tensor;
  for (const std::string& name : spec.alternatives) {
    if (const TensorInfo* tensor = file.FindTensor(name)) return tensor;
  }
  return nullptr;
}

Status CheckPresent(const GgufFile& file, const std::vector<TensorSpec>& specs,
                    std::string_view network) {
  std::vector<std::string> missing;
  for (const TensorSpec& spec : specs) {
    if (spec.presence == Presence::kRequired && FindSpec(file, spec) == nullptr) {
      const std::string& name = spec.in_file.empty() ? spec.name : spec.in_file;
      missing.push_back(fmt::format("'{}' {}", name, FileShape(spec.dims)));
    }
  }
  if (missing.empty()) return OkStatus();
  const size_t named = std::min(missing.size(), kNamedInMessages);
  return MakeError(
      ErrorKind::kModelFile, "model.missing_tensor",
      "{} of {} tensors missing, expected {}{}; is the file whole and a {}?", missing.size(),
      specs.size(),
      fmt::join(missing.begin(), missing.begin() + static_cast<ptrdiff_t>(named), ", "),
      named < missing.size() ? ", ..." : "", network);
}

Status CheckTensor(const TensorSpec& spec, const TensorInfo& tensor) {
  if (!SameShape(tensor, spec.dims)) {
    return MakeError(ErrorKind::kModelFile, "model.tensor_shape",
                     "tensor '{}' has shape {}, expected {} (fastest dimension first); the "
                     "metadata and the tensors are of different models",
                     tensor.name, FileShape(tensor), FileShape(spec.dims));
  }
  if (spec.is_vector() && tensor.dtype != DType::kF32) {
    return MakeError(ErrorKind::kModelFile, "model.tensor_dtype",
                     "tensor '{}' is {}, expected f32: norms and scales are not quantised",
                     tensor.name, NameOf(tensor.dtype));
  }
  if (!IsWeightType(tensor.dtype)) {
    return MakeError(ErrorKind::kModelFile, "model.tensor_dtype",
                     "tensor '{}' is {}, expected f32, f16, bf16 or a quantised weight type",
                     tensor.name, NameOf(tensor.dtype));
  }
  return OkStatus();
}

bool IsTower(std::string_view name) {
  return std::any_of(kTowerPrefixes.begin(), kTowerPrefixes.end(),
                     [name](std::string_view prefix) { return name.starts_with(prefix); });
}

// The binding of a tensor of the file, or null.
const WeightBinding* FindTensor(const ModelWeights::Bindings& bindings, std::string_view tensor) {
  const auto found = std::ranges::find_if(
      bindings, [tensor](const auto& entry) { return entry.second.tensor == tensor; });
  return found == bindings.end() ? nullptr : &found->second;
}

// The matrix of which a tensor "X.scale" or "X.input_scale" has a factor; null if it has none. The
// factor of the input serves those who quantise activations.
const WeightBinding* ScaledMatrix(const ModelWeights::Bindings& bindings, std::string_view name) {
  constexpr std::array<std::string_view, 2> kFactors = {".input_scale", ".scale"};
  const auto suffix = std::ranges::find_if(
      kFactors, [name](std::string_view factor) { return name.ends_with(factor); });
  if (suffix == kFactors.end()) return nullptr;
  const std::string_view matrix = name.substr(0, name.size() - suffix->size());
  const WeightBinding* found = FindTensor(bindings, fmt::format("{}.weight", matrix));
  return found != nullptr && found->dims.size() == 2 ? found : nullptr;
}

// The tensors that nothing above accounts for.
Status CheckExtra(const GgufFile& file, const std::vector<TensorSpec>& specs,
                  const ModelWeights::Bindings& bindings, const ModelWeights::CheckOptions& options,
                  std::vector<std::string>& warnings) {
  std::set<std::string_view> known;
  for (const TensorSpec& spec : specs) {
    known.insert(spec.name);
    known.insert(spec.alternatives.begin(), spec.alternatives.end());
  }
  std::vector<std::string_view> extra;
  for (const TensorInfo& tensor : file.tensors()) {
    if (known.contains(tensor.name) || IsTower(tensor.name)) continue;
    if (options.scales && ScaledMatrix(bindings, tensor.name) != nullptr) continue;
    if (tensor.name.ends_with(".scale")) {
      return MakeError(ErrorKind::kModelFile, "model.unsupported",
                       "tensor '{}' scales a weight (NVFP4 files), which is supported for matrices "
                       "of the text layers only, not for experts, drafters and towers",
                       tensor.name);
    }
    extra.push_back(tensor.name);
  }
  if (extra.empty()) return OkStatus();
  const size_t named = std::min(extra.size(), kNamedInMessages);
  std::string text =
      fmt::format("{} tensors are not part of a {}: {}{}", extra.size(), options.network,
                  fmt::join(extra.begin(), extra.begin() + static_cast<ptrdiff_t>(named), ", "),
                  named < extra.size() ? ", ..." : "");
  if (options.strict) {
    return MakeError(ErrorKind::kModelFile, "model.unknown_tensor",
                     "{}; expected none (strict check)", text);
  }
  warnings.push_back(text + "; they are ignored");
  return OkStatus();
}

}  // namespace

Status ModelWeights::ReadScales(const GgufFile& file) {
  for (const TensorInfo& tensor : file.tensors()) {
    const WeightBinding* matrix = ScaledMatrix(bindings_, tensor.name);
    if (matrix == nullptr || tensor.name.ends_with(".input_scale")) continue;
    // The network may have a tensor of such a name itself: the scale of a router's input.
    if (FindTensor(bindings_, tensor.name) != nullptr) continue;
    float scale = 0;
    if (tensor.dtype == DType::kF32 && tensor.elements() == 1) {
      RL_ASSIGN_OR_RETURN(const auto bytes, file.Load(tensor));
      std::memcpy(&scale, bytes.data(), sizeof(scale));
    }
    if (scale == 0 || !std::isfinite(scale)) {
      return MakeError(ErrorKind::kModelFile, "model.unsupported",
                       "tensor '{}' is {} of shape {}, expected one f32 number that is finite and "
                       "not 0: the factor of '{}'",
                       tensor.name, NameOf(tensor.dtype), FileShape(tensor), matrix->tensor);
    }
    scales_.push_back({.weight = matrix->tensor, .scale = scale});
  }
  return OkStatus();
}

Result<ModelWeights> ModelWeights::FromFile(const std::vector<TensorSpec>& specs,
                                            const GgufFile& file, const CheckOptions& options) {
  RL_RETURN_IF_ERROR(CheckPresent(file, specs, options.network));
  ModelWeights weights;
  for (const TensorSpec& spec : specs) {
    if (spec.presence == Presence::kUnused) continue;
    const TensorInfo* tensor = FindSpec(file, spec);
    if (tensor == nullptr) continue;
    RL_RETURN_IF_ERROR(CheckTensor(spec, *tensor));
    weights.bindings_[spec.name] = {
        .tensor = std::string(tensor->name), .dtype = tensor->dtype, .dims = spec.dims};
  }
  if (!options.part) {
    RL_RETURN_IF_ERROR(CheckExtra(file, specs, weights.bindings_, options, weights.warnings_));
    if (options.scales) RL_RETURN_IF_ERROR(weights.ReadScales(file));
  }
  return weights;
}

}  // namespace rullama
