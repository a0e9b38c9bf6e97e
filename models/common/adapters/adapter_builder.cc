#include "models/common/adapters/adapter_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "core/base/printable.h"

namespace rullama::adapters {
namespace {

// The tensors whose product with the residual stream an adapter can change, of any family: which of
// them a model has, its table says.
constexpr std::array<std::string_view, 15> kAdaptable = {
    "attn_q.weight",        "attn_k.weight",
    "attn_v.weight",        "attn_output.weight",
    "ffn_gate.weight",      "ffn_up.weight",
    "ffn_down.weight",      "inp_gate.weight",
    "proj.weight",          "per_layer_model_proj.weight",
    "ffn_gate_inp.weight",  "ffn_gate_up_exps.weight",
    "ffn_gate_exps.weight", "ffn_up_exps.weight",
    "ffn_down_exps.weight",
};

bool IsAdaptable(std::string_view tensor) {
  if (tensor.starts_with("blk.")) {
    const size_t dot = tensor.find('.', 4);
    tensor = dot == std::string_view::npos ? tensor : tensor.substr(dot + 1);
  }
  return std::ranges::find(kAdaptable, tensor) != kAdaptable.end();
}

bool IsTable(std::string_view tensor) {
  return tensor == "token_embd.weight" || tensor == "output.weight" ||
         tensor == "per_layer_token_embd.weight";
}

// Modules of Hugging Face's implementations; families share the names.
struct ModuleName {
  std::string_view module;
  std::string_view tensor;
};
constexpr std::array kModules = {
    ModuleName{"self_attn.q_proj", "attn_q"},       ModuleName{"self_attn.k_proj", "attn_k"},
    ModuleName{"self_attn.v_proj", "attn_v"},       ModuleName{"self_attn.o_proj", "attn_output"},
    ModuleName{"mlp.gate_proj", "ffn_gate"},        ModuleName{"mlp.up_proj", "ffn_up"},
    ModuleName{"mlp.down_proj", "ffn_down"},        ModuleName{"router.proj", "ffn_gate_inp"},
    ModuleName{"per_layer_input_gate", "inp_gate"}, ModuleName{"per_layer_projection", "proj"},
};

std::optional<int64_t> LayerNumber(std::string_view text) {
  if (text.empty() || text.size() > 4) return std::nullopt;
  int64_t number = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    number = number * 10 + (c - '0');
  }
  return number;
}

}  // namespace

bool IsInTower(std::string_view module) {
  constexpr std::array<std::string_view, 3> kTowers = {"vision", "audio", "multi_modal"};
  return std::ranges::any_of(kTowers, [module](std::string_view tower) {
    return module.find(tower) != std::string_view::npos;
  });
}

Result<ModuleTarget> TargetOfModule(std::string_view module, std::string_view tensor) {
  for (const std::string_view prefix :
       {"base_model.model.", "model.", "language_model.", "model."}) {
    if (module.starts_with(prefix)) module.remove_prefix(prefix.size());
  }
  if (module.starts_with("embed_tokens") || module == "lm_head") {
    return MakeError(
        ErrorKind::kModelFile, "adapter.unsupported",
        "tensor '{}' adapts the token embedding, which is also the output layer; "
        "expected projections of layers. Merge the adapter before converting the model",
        ShownName(tensor));
  }
  if (module == "per_layer_model_projection") {
    return ModuleTarget{.tensor = "per_layer_model_proj.weight"};
  }
  constexpr std::string_view kLayers = "layers.";
  if (module.starts_with(kLayers)) {
    module.remove_prefix(kLayers.size());
    const size_t dot = std::min(module.find('.'), module.size());
    const auto layer = LayerNumber(module.substr(0, dot));
    const std::string_view rest = module.substr(std::min(dot + 1, module.size()));
    if (layer && rest == "experts")
      return ModuleTarget{.tensor = {}, .layer = *layer, .experts = true};
    const auto* const found = std::ranges::find(kModules, rest, &ModuleName::module);
    if (layer && found != kModules.end()) {
      return ModuleTarget{.tensor = fmt::format("blk.{}.{}.weight", *layer, found->tensor),
                          .layer = *layer};
    }
  }
  return MakeError(ErrorKind::kModelFile, "adapter.unknown_tensor",
                   "tensor '{}' belongs to no module that is known; expected names such "
                   "as base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight",
                   ShownName(tensor));
}

Result<std::string> ModuleOfTensor(std::string_view tensor) {
  if (tensor == "per_layer_model_proj.weight") return std::string("per_layer_model_projection");
  constexpr std::string_view kBlock = "blk.";
  constexpr std::string_view kWeight = ".weight";
  std::string_view rest = tensor;
  if (rest.starts_with(kBlock) && rest.ends_with(kWeight)) {
    rest = rest.substr(kBlock.size(), rest.size() - kBlock.size() - kWeight.size());
    const size_t dot = std::min(rest.find('.'), rest.size());
    const auto* const found = std::ranges::find(
        kModules, rest.substr(std::min(dot + 1, rest.size())), &ModuleName::tensor);
    if (found != kModules.end()) {
      return fmt::format("layers.{}.{}", rest.substr(0, dot), found->module);
    }
  }
  return MakeError(ErrorKind::kUsage, "adapter.write",
                   "'{}' is not a projection that PEFT has a module for", tensor);
}

AdapterBuilder::AdapterBuilder(const AdapterTarget& target, std::string path) {
  adapter_.path = std::move(path);
  for (const TensorSpec& spec : target.tensors) table_.emplace(spec.name, spec);
}

Result<const TensorSpec*> AdapterBuilder::Find(const std::string& tensor,
                                               std::string_view name) const {
  if (IsTable(tensor)) {
    return MakeError(
        ErrorKind::kModelFile, "adapter.unsupported",
        "tensor '{}' adapts {}, a table of embeddings; expected projections of layers. "
        "Merge the adapter before converting the model",
        ShownName(name), tensor);
  }
  const auto found = table_.find(tensor);
  if (found == table_.end() || !IsAdaptable(tensor)) {
    return MakeError(ErrorKind::kModelFile, "adapter.unknown_tensor",
                     "tensor '{}' adapts '{}', which {}; expected an adapter made for this model",
                     ShownName(name), ShownName(tensor),
                     found == table_.end() ? "this model does not have" : "takes no adapter");
  }
  return &found->second;
}

Status AdapterBuilder::Add(const std::string& tensor, Half half, Part part) {
  RL_ASSIGN_OR_RETURN(const TensorSpec* spec, Find(tensor, part.name));
  const auto bad = std::ranges::find_if_not(part.values, [](float v) { return std::isfinite(v); });
  if (bad != part.values.end()) {
    return MakeError(ErrorKind::kModelFile, "adapter.value",
                     "tensor '{}' has {} as element {}, expected finite numbers; the adapter is "
                     "damaged or its training failed",
                     ShownName(part.name), *bad, bad - part.values.begin());
  }
  if (spec->presence == Presence::kUnused) unused_.push_back(ShownName(part.name));
  const auto [at, added] = parts_[tensor].halves.emplace(half, std::move(part));
  if (added) return OkStatus();
  return MakeError(ErrorKind::kModelFile, "adapter.pair",
                   "'{}' adapts '{}' a second time, expected one A and one B for each weight",
                   ShownName(at->second.name), tensor);
}

const AdapterBuilder::Part* AdapterBuilder::Parts::Find(Half half) const {
  const auto found = halves.find(half);
  return found == halves.end() ? nullptr : &found->second;
}

Result<AdapterWeight> AdapterBuilder::Join(const std::string& tensor, Parts& parts,
                                           const ScaleOf& scale_of) {
  const Part* a = parts.Find(Half::kA);
  const Part* b = parts.Find(Half::kB);
  if (a == nullptr || b == nullptr) {
    return MakeError(ErrorKind::kModelFile, "adapter.pair",
                     "'{}' comes without {}, expected both; the adapter is incomplete",
                     ShownName((a == nullptr ? b : a)->name), a == nullptr ? "A" : "B");
  }
  const std::vector<int64_t>& dims = table_.find(tensor)->second.dims;
  const bool grouped = dims.size() == 3;
  AdapterWeight weight{.tensor = tensor,
                       .experts = grouped ? dims[0] : 0,
                       .rank = a->shape.size() == dims.size() ? a->shape[dims.size() - 2] : 0,
                       .inputs = dims[dims.size() - 1],
                       .outputs = dims[dims.size() - 2],
                       .a = {},
                       .b = {}};
  std::vector<int64_t> want_a = {weight.rank, weight.inputs};
  std::vector<int64_t> want_b = {weight.outputs, weight.rank};
  if (grouped) {
    want_a.insert(want_a.begin(), weight.experts);
    want_b.insert(want_b.begin(), weight.experts);
  }
  if (a->shape != want_a || b->shape != want_b) {
    return MakeError(ErrorKind::kModelFile, "adapter.shape",
                     "'{}' is [{}] and '{}' is [{}], expected [rank, {}] and [{}, rank]{} for the "
                     "model's {}; the adapter was made for another model",
                     ShownName(a->name), fmt::join(a->shape, ", "), ShownName(b->name),
                     fmt::join(b->shape, ", "), weight.inputs, weight.outputs,
                     grouped ? fmt::format(" for each of {} experts", weight.experts) : "", tensor);
  }
  if (weight.rank < 1 || weight.rank > std::min(weight.inputs, weight.outputs)) {
    return MakeError(ErrorKind::kModelFile, "adapter.rank", "'{}' has rank {}, expected 1 to {}",
                     ShownName(a->name), weight.rank, std::min(weight.inputs, weight.outputs));
  }
  RL_ASSIGN_OR_RETURN(weight.scale, scale_of(a->module, weight.rank));
  weight.a = std::move(parts.halves[Half::kA].values);
  weight.b = std::move(parts.halves[Half::kB].values);
  // Rows with the factor 0 would get NaN of an infinite product.
  const auto overflows = [&weight](float v) {
    return !std::isfinite(static_cast<float>(v * weight.scale));
  };
  if (std::ranges::any_of(weight.b, overflows)) {
    return MakeError(ErrorKind::kModelFile, "adapter.value",
                     "'{}' times its factor {} is not finite; the adapter is damaged or its "
                     "training failed",
                     ShownName(b->name), weight.scale);
  }
  return weight;
}

Result<Adapter> AdapterBuilder::Finish(const ScaleOf& scale_of) && {
  for (auto& [tensor, parts] : parts_) {
    RL_ASSIGN_OR_RETURN(AdapterWeight weight, Join(tensor, parts, scale_of));
    if (table_.find(tensor)->second.presence == Presence::kUnused) continue;
    adapter_.weights.push_back(std::move(weight));
  }
  if (!unused_.empty()) {
    adapter_.warnings.push_back(fmt::format(
        "{} tensors of the adapter have no effect, as their layers read the keys and values of "
        "another layer: the first is '{}'",
        unused_.size(), unused_.front()));
  }
  if (!towers_.empty()) {
    adapter_.warnings.push_back(
        fmt::format("{} tensors of the adapter belong to image or audio towers and are left out, "
                    "the text layers are adapted: the first is '{}'",
                    towers_.size(), ShownName(towers_.front())));
  }
  if (!adapter_.weights.empty()) return std::move(adapter_);
  return MakeError(
      ErrorKind::kModelFile, "adapter.empty", "the adapter changes no weight of the {}",
      towers_.empty() ? std::string("model, expected at least one")
                      : fmt::format("text layers, only of image or audio towers ('{}'), which "
                                    "take no adapter; expected at least one text layer",
                                    ShownName(towers_.front())));
}

}  // namespace rullama::adapters
