// Adapters in safetensors: those of PEFT, of MLX and of the Rust rullama, told apart by the names
// of their tensors.
#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <system_error>
#include <utility>

#include "core/base/from_chars.h"
#include "core/base/printable.h"
#include "core/safetensors/safetensors.h"
#include "models/common/adapters/adapter_builder.h"
#include "models/common/adapters/peft_config.h"

namespace rullama::adapters {
namespace {

using Half = AdapterBuilder::Half;

struct Suffix {
  std::string_view text;
  Half half;
};
// With "default", the name of the adapter, as PEFT has it in memory; after the name of the weight,
// as trainers write that adapt parameters in place of modules.
constexpr std::array kPeftSuffixes = {
    Suffix{".lora_A.weight", Half::kA},         Suffix{".lora_B.weight", Half::kB},
    Suffix{".lora_A.default.weight", Half::kA}, Suffix{".lora_B.default.weight", Half::kB},
    Suffix{".weight.lora_A", Half::kA},         Suffix{".weight.lora_B", Half::kB}};
constexpr std::array kMlxSuffixes = {Suffix{".lora_a", Half::kA}, Suffix{".lora_b", Half::kB}};
constexpr std::array kRustSuffixes = {Suffix{".A", Half::kA}, Suffix{".B", Half::kB}};
constexpr std::string_view kRustPrefix = "lora.";
constexpr std::string_view kPeftPrefix = "base_model.model.";

// The name without its suffix and which half it is.
Result<std::pair<std::string_view, Half>> SplitName(std::string_view name,
                                                    std::span<const Suffix> suffixes) {
  for (const Suffix& suffix : suffixes) {
    if (name.ends_with(suffix.text)) {
      return std::pair(name.substr(0, name.size() - suffix.text.size()), suffix.half);
    }
  }
  return MakeError(ErrorKind::kModelFile, "adapter.unknown_tensor",
                   "tensor '{}' is not half of an adapter, expected names that end in {} or {}",
                   ShownName(name), suffixes[0].text, suffixes[1].text);
}

std::vector<float> Transposed(const std::vector<float>& values, int64_t rows, int64_t columns) {
  std::vector<float> result(values.size());
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      result[static_cast<size_t>(column * rows + row)] =
          values[static_cast<size_t>(row * columns + column)];
    }
  }
  return result;
}

class SafetensorsAdapterReader {
 public:
  SafetensorsAdapterReader(const SafetensorsFile& file, const std::string& path,
                           const AdapterTarget& target)
      : file_(file), target_(target), builder_(target, path) {}

  Result<Adapter> ReadPeft(const PeftConfig& config) && {
    for (const SafetensorsTensor& tensor : file_.tensors()) {
      RL_RETURN_IF_ERROR(AddPeft(tensor, config));
    }
    return std::move(builder_).Finish(
        [&config](std::string_view module, int64_t rank) { return config.ScaleOf(module, rank); });
  }

  Result<Adapter> ReadRust() && {
    RL_ASSIGN_OR_RETURN(const double rank, Number("rank"));
    RL_ASSIGN_OR_RETURN(const double alpha, Number("alpha"));
    for (const SafetensorsTensor& tensor : file_.tensors()) RL_RETURN_IF_ERROR(AddRust(tensor));
    return std::move(builder_).Finish(
        [rank, alpha](std::string_view module, int64_t found) -> Result<double> {
          if (rank == static_cast<double>(found)) return alpha / rank;
          return MakeError(ErrorKind::kModelFile, "adapter.rank",
                           "the adapter of '{}' has rank {}, the metadata says {}",
                           ShownName(module), found, rank);
        });
  }

 private:
  // A number above 0 of the metadata.
  Result<double> Number(const char* key) const {
    const auto found = file_.metadata().find(key);
    double number = 0;
    if (found != file_.metadata().end()) {
      const std::string& text = found->second;
      const auto [end, error] = FromChars(text.data(), text.data() + text.size(), number);
      if (error != std::errc() || end != text.data() + text.size()) number = 0;
    }
    if (std::isfinite(number) && number > 0) return number;
    return MakeError(ErrorKind::kModelFile, "adapter.config",
                     "the metadata has no valid '{}', expected a number above 0", key);
  }

  Status AddRust(const SafetensorsTensor& tensor) {
    RL_ASSIGN_OR_RETURN(const auto split, SplitName(tensor.name, kRustSuffixes));
    std::string target(split.first.substr(std::min(kRustPrefix.size(), split.first.size())));
    constexpr std::string_view kOutput = "attn_o";
    if (target.ends_with(kOutput)) target += "utput";
    RL_ASSIGN_OR_RETURN(std::vector<float> values, file_.Floats(tensor));
    return builder_.Add(target + ".weight", split.second,
                        {tensor.name, target, tensor.shape, std::move(values)});
  }

  Status AddPeft(const SafetensorsTensor& tensor, const PeftConfig& config) {
    const bool mlx = config.mlx_scale.has_value();
    RL_ASSIGN_OR_RETURN(
        const auto split,
        SplitName(tensor.name, mlx ? std::span<const Suffix>(kMlxSuffixes) : kPeftSuffixes));
    auto [module, half] = split;
    if (IsInTower(module)) {
      builder_.LeaveOut(tensor.name);
      return OkStatus();
    }
    if (module.starts_with(kPeftPrefix)) module.remove_prefix(kPeftPrefix.size());
    constexpr std::string_view kBase = ".base_layer";
    std::string_view target_name = module;
    if (module.ends_with(".experts.base_layer")) target_name.remove_suffix(kBase.size());
    RL_ASSIGN_OR_RETURN(ModuleTarget target, TargetOfModule(target_name, tensor.name));
    RL_RETURN_IF_ERROR(CheckSelected(config, module, target, tensor.name));
    RL_ASSIGN_OR_RETURN(std::vector<float> values, file_.Floats(tensor));
    AdapterBuilder::Part part{tensor.name, std::string(module), tensor.shape, std::move(values)};
    if (mlx && part.shape.size() == 2) {
      part.values = Transposed(part.values, part.shape[0], part.shape[1]);
      std::swap(part.shape[0], part.shape[1]);
    }
    if (!target.experts) return builder_.Add(target.tensor, half, std::move(part));
    return AddExperts(target.layer, half, std::move(part));
  }

  // PEFT would not load a tensor that its configuration leaves out.
  static Status CheckSelected(const PeftConfig& config, std::string_view module,
                              const ModuleTarget& target, std::string_view name) {
    const bool layer_chosen =
        config.layers.empty() || target.layer < 0 || config.layers.contains(target.layer);
    const bool module_chosen =
        config.targets.empty() || target.experts ||
        std::ranges::any_of(config.targets, [module](std::string_view suffix) {
          return module == suffix || (module.size() > suffix.size() && module.ends_with(suffix) &&
                                      module[module.size() - suffix.size() - 1] == '.');
        });
    if (layer_chosen && module_chosen) return OkStatus();
    return MakeError(ErrorKind::kModelFile, "adapter.config",
                     "tensor '{}' does not belong to the {} of adapter_config.json; the two files "
                     "are not of one adapter",
                     ShownName(name), layer_chosen ? "target_modules" : "layers_to_transform");
  }

  // A [experts * rank, in] expert by expert; B [out, rank * experts] with the experts of a rank
  // side by side. Which of the two products it belongs to follows from the other dimension.
  Status AddExperts(int64_t layer, Half half, AdapterBuilder::Part part) {
    // [experts, width, FFN width]; a model without experts has no such tensor.
    const std::string down_name = fmt::format("blk.{}.ffn_down_exps.weight", layer);
    const auto found = std::ranges::find(target_.tensors, down_name, &TensorSpec::name);
    const bool has_experts = found != target_.tensors.end();
    const int64_t count = has_experts ? found->dims[0] : 0;
    const bool fits =
        part.shape.size() == 2 && count > 0 && part.shape[half == Half::kA ? 0 : 1] % count == 0;
    if (!fits) {
      return MakeError(ErrorKind::kModelFile, "adapter.shape",
                       "tensor '{}' is [{}], expected a matrix for the {} experts of the model",
                       ShownName(part.name), fmt::join(part.shape, ", "), count);
    }
    const int64_t other = part.shape[half == Half::kA ? 1 : 0];
    const bool down = other == (half == Half::kA ? found->dims[2] : found->dims[1]);
    if (half == Half::kA) {
      part.shape = {count, part.shape[0] / count, part.shape[1]};
    } else {
      const int64_t rank = part.shape[1] / count;
      std::vector<float> sorted(part.values.size());
      for (int64_t out = 0; out < other; ++out) {
        for (int64_t k = 0; k < rank; ++k) {
          for (int64_t expert = 0; expert < count; ++expert) {
            sorted[static_cast<size_t>((expert * other + out) * rank + k)] =
                part.values[static_cast<size_t>((out * rank + k) * count + expert)];
          }
        }
      }
      part.values = std::move(sorted);
      part.shape = {count, other, rank};
    }
    return builder_.Add(down ? down_name : fmt::format("blk.{}.ffn_gate_up_exps.weight", layer),
                        half, std::move(part));
  }

  const SafetensorsFile& file_;
  const AdapterTarget& target_;
  AdapterBuilder builder_;
};

}  // namespace

Result<Adapter> ReadSafetensorsAdapter(const std::string& path, const std::string& config_path,
                                       const AdapterTarget& target) {
  RL_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Open(path));
  SafetensorsAdapterReader reader(file, path, target);
  const bool rust = std::ranges::any_of(file.tensors(), [](const SafetensorsTensor& tensor) {
    return tensor.name.starts_with(kRustPrefix);
  });
  if (rust) return std::move(reader).ReadRust();
  auto peft = PeftConfig::Read(config_path);
  if (!peft) {
    return tl::unexpected(
        std::move(peft).error().WithContext(fmt::format("'{}'", ShownName(config_path))));
  }
  return std::move(reader).ReadPeft(*peft);
}

}  // namespace rullama::adapters
