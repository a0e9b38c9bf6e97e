#include "models/common/adapters/adapter_writer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string_view>

#include "core/gguf/atomic_file.h"
#include "core/gguf/gguf_writer.h"
#include "core/safetensors/safetensors.h"
#include "models/common/adapters/adapter_builder.h"

namespace rullama {
namespace {

// The files say rank and factor once.
Status CheckUniform(const Adapter& adapter) {
  const auto& weights = adapter.weights;
  for (const AdapterWeight& weight : weights) {
    if (weight.experts == 0 && weight.rank == weights[0].rank && weight.scale == weights[0].scale) {
      continue;
    }
    return MakeError(ErrorKind::kUsage, "adapter.write",
                     "'{}' has rank {}, factor {} and {} experts, '{}' rank {} and factor {}; "
                     "expected one rank and factor for all, and no experts",
                     weight.tensor, weight.rank, weight.scale, weight.experts, weights[0].tensor,
                     weights[0].rank, weights[0].scale);
  }
  if (!weights.empty()) return OkStatus();
  return MakeError(ErrorKind::kUsage, "adapter.write",
                   "an adapter without weights cannot be written");
}

Status WriteFile(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  RL_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  RL_RETURN_IF_ERROR(file.Append(bytes));
  return file.Commit();
}

// The alpha that makes the factor of a weight.
double AlphaOf(const AdapterWeight& weight, bool rslora) {
  const auto rank = static_cast<double>(weight.rank);
  return weight.scale * (rslora ? std::sqrt(rank) : rank);
}

}  // namespace

std::vector<AdaptableWeight> AdaptableWeights(const std::vector<TensorSpec>& tensors) {
  std::vector<AdaptableWeight> weights;
  for (const TensorSpec& spec : tensors) {
    if (spec.dims.size() != 2 || spec.presence == Presence::kUnused) continue;
    const auto module = adapters::ModuleOfTensor(spec.name);
    if (!module || module->ends_with("router.proj")) continue;
    const std::string_view tensor = spec.name;
    // The model has the only other one, per_layer_model_proj, in parts.
    if (!tensor.starts_with("blk.")) continue;
    const size_t begin = tensor.find('.', 4) + 1;
    weights.push_back({.tensor = spec.name,
                       .name = spec.name.substr(begin, spec.name.rfind('.') - begin),
                       .module = module->substr(module->rfind('.') + 1),
                       .layer = std::stoll(spec.name.substr(4)),
                       .inputs = spec.dims[1],
                       .outputs = spec.dims[0]});
  }
  return weights;
}

Status WritePeftAdapter(const Adapter& adapter, const AdapterFileOptions& options,
                        const std::filesystem::path& path) {
  RL_RETURN_IF_ERROR(CheckUniform(adapter));
  const bool multimodal = options.names == AdapterNames::kMultimodal;
  const std::string prefix =
      multimodal ? "base_model.model.model.language_model." : "base_model.model.model.";
  std::vector<SafetensorsOutput> tensors;
  std::set<std::string> targets;
  for (const AdapterWeight& weight : adapter.weights) {
    RL_ASSIGN_OR_RETURN(const std::string module, adapters::ModuleOfTensor(weight.tensor));
    const std::string name = prefix + module;
    tensors.push_back({name + ".lora_A.weight", {weight.rank, weight.inputs}, weight.a});
    tensors.push_back({name + ".lora_B.weight", {weight.outputs, weight.rank}, weight.b});
    targets.insert(module.substr(module.rfind('.') + 1));
  }
  nlohmann::ordered_json config = {{"peft_type", "LORA"},
                                   {"task_type", "CAUSAL_LM"},
                                   {"base_model_name_or_path", options.base},
                                   {"r", adapter.weights[0].rank},
                                   {"lora_alpha", AlphaOf(adapter.weights[0], options.rslora)},
                                   {"lora_dropout", 0.0},
                                   {"bias", "none"},
                                   {"target_modules", targets},
                                   {"fan_in_fan_out", false},
                                   {"inference_mode", true},
                                   {"init_lora_weights", true},
                                   {"use_rslora", options.rslora}};
  if (multimodal) {
    // A list of suffixes would also mean modules of the image and audio towers.
    config["target_modules"] =
        fmt::format(R"(.*language_model\..*\b({}))", fmt::join(targets, "|"));
  }
  const std::string text = config.dump(2) + "\n";
  RL_RETURN_IF_ERROR(WriteFile(path / "adapter_model.safetensors",
                               EncodeSafetensors(std::move(tensors), {{"format", "pt"}})));
  return WriteFile(path / "adapter_config.json", std::as_bytes(std::span(text)));
}

Status WriteGgufAdapter(const Adapter& adapter, const std::string& architecture,
                        const std::filesystem::path& path) {
  RL_RETURN_IF_ERROR(CheckUniform(adapter));
  GgufWriter writer;
  RL_RETURN_IF_ERROR(writer.Set("general.architecture", architecture));
  RL_RETURN_IF_ERROR(writer.Set("general.type", "adapter"));
  RL_RETURN_IF_ERROR(writer.Set("adapter.type", "lora"));
  RL_RETURN_IF_ERROR(writer.Set("adapter.lora.alpha",
                                static_cast<float>(AlphaOf(adapter.weights[0], /*rslora=*/false))));
  for (const AdapterWeight& weight : adapter.weights) {
    const auto rank = static_cast<uint64_t>(weight.rank);
    const uint64_t a_dims[] = {static_cast<uint64_t>(weight.inputs), rank};
    const uint64_t b_dims[] = {rank, static_cast<uint64_t>(weight.outputs)};
    RL_RETURN_IF_ERROR(writer.AddTensor(weight.tensor + ".lora_a", DType::kF32, a_dims));
    RL_RETURN_IF_ERROR(writer.AddTensor(weight.tensor + ".lora_b", DType::kF32, b_dims));
  }
  RL_ASSIGN_OR_RETURN(GgufOutput output, writer.Begin(path));
  for (const AdapterWeight& weight : adapter.weights) {
    RL_RETURN_IF_ERROR(output.Append(std::as_bytes(std::span(weight.a))));
    RL_RETURN_IF_ERROR(output.Append(std::as_bytes(std::span(weight.b))));
  }
  return output.Finish();
}

}  // namespace rullama
