// Adapters of llama.cpp: GGUF files with tensors NAME.lora_a and NAME.lora_b.
#include <cmath>
#include <utility>

#include "core/base/printable.h"
#include "core/gguf/dequantize.h"
#include "core/gguf/gguf.h"
#include "core/gguf/loaded_tensor.h"
#include "models/common/adapters/adapter_builder.h"

namespace rullama::adapters {
namespace {

Status CheckKey(const GgufFile& file, std::string_view key, std::string_view expected) {
  RL_ASSIGN_OR_RETURN(const std::string_view found, file.GetString(key));
  if (found == expected) return OkStatus();
  return MakeError(ErrorKind::kModelFile, "adapter.arch",
                   "{} is '{}', expected '{}': a LoRA adapter for this model", key,
                   ShownName(found), expected);
}

Result<std::vector<float>> ValuesOf(const GgufFile& file, const TensorInfo& tensor) {
  RL_ASSIGN_OR_RETURN(const LoadedTensor loaded, LoadedTensor::Load(file, tensor));
  std::vector<float> values(static_cast<size_t>(tensor.elements()));
  RL_RETURN_IF_ERROR(Dequantize(tensor.dtype, loaded.bytes(), values));
  return values;
}

Status AddTensor(const GgufFile& file, const TensorInfo& tensor, AdapterBuilder& builder) {
  constexpr std::string_view kA = ".lora_a";
  constexpr std::string_view kB = ".lora_b";
  const std::string_view name = tensor.name;
  if (!name.ends_with(kA) && !name.ends_with(kB)) {
    return MakeError(ErrorKind::kModelFile, "adapter.unknown_tensor",
                     "tensor '{}' is not half of an adapter, expected names that end in .lora_a or "
                     ".lora_b",
                     ShownName(name));
  }
  const std::string target(name.substr(0, name.size() - kA.size()));
  AdapterBuilder::Part part{.name = std::string(name), .module = target, .shape = {}, .values = {}};
  for (uint32_t axis = tensor.rank; axis-- > 0;) {
    part.shape.push_back(static_cast<int64_t>(tensor.dims[axis]));
  }
  RL_ASSIGN_OR_RETURN(part.values, ValuesOf(file, tensor));
  const auto half = name.ends_with(kA) ? AdapterBuilder::Half::kA : AdapterBuilder::Half::kB;
  return builder.Add(target, half, std::move(part));
}

}  // namespace

Result<Adapter> ReadGgufAdapter(const std::string& path, const AdapterTarget& target) {
  RL_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Open(path));
  RL_RETURN_IF_ERROR(CheckKey(file, "general.type", "adapter"));
  RL_RETURN_IF_ERROR(CheckKey(file, "adapter.type", "lora"));
  RL_RETURN_IF_ERROR(CheckKey(file, "general.architecture", target.architecture));
  if (file.Has("adapter.alora.invocation_tokens")) {
    return MakeError(ErrorKind::kModelFile, "adapter.unsupported",
                     "the adapter is an activated LoRA (adapter.alora.invocation_tokens), which "
                     "begins to act in the middle of a prompt; expected a plain LoRA");
  }
  RL_ASSIGN_OR_RETURN(const auto alpha, file.FindF32("adapter.lora.alpha"));
  AdapterBuilder builder(target, path);
  for (const TensorInfo& tensor : file.tensors()) {
    RL_RETURN_IF_ERROR(AddTensor(file, tensor, builder));
  }
  // Without alpha the user's scale alone counts, as in llama.cpp.
  const double factor = alpha.value_or(0.0F);
  if (!std::isfinite(factor)) {
    return MakeError(ErrorKind::kModelFile, "adapter.config",
                     "adapter.lora.alpha is {}, expected a finite number", factor);
  }
  return std::move(builder).Finish([factor](std::string_view, int64_t rank) -> Result<double> {
    return factor == 0 ? 1.0 : factor / static_cast<double>(rank);
  });
}

}  // namespace rullama::adapters
