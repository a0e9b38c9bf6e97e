#include "models/common/adapters/peft_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/base/error_of.h"
#include "core/base/json_reader.h"
#include "core/base/mmap_file.h"
#include "core/base/printable.h"
#include "models/common/adapters/adapter_builder.h"

namespace rullama::adapters {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxConfigBytes = size_t{16} << 20;
constexpr size_t kMaxConfigDepth = 8;

// Fields that say where an adapter comes from or how it was trained, and change no number.
constexpr std::array<std::string_view, 19> kHarmless = {
    "auto_mapping",
    "base_model_name_or_path",
    "revision",
    "inference_mode",
    "task_type",
    "peft_version",
    "exclude_modules",
    "layers_pattern",
    "lora_dropout",
    "megatron_core",
    "megatron_config",
    "loftq_config",
    "eva_config",
    "corda_config",
    "lora_ga_config",
    "qalora_group_size",
    "ensure_weight_tying",
    "runtime_config",
    "target_parameters",
};
constexpr std::array<std::string_view, 12> kRead = {
    "peft_type",
    "r",
    "lora_alpha",
    "use_rslora",
    "rank_pattern",
    "alpha_pattern",
    "target_modules",
    "layers_to_transform",
    "bias",
    "modules_to_save",
    "init_lora_weights",
    "fan_in_fan_out",
};
// Ways to begin that leave the base model as it is. Others change it, and the adapter is relative
// to the changed one.
constexpr std::array<std::string_view, 3> kPlainStarts = {"gaussian", "eva", "orthogonal"};

using BadConfig = ErrorOf<ErrorKind::kModelFile, "adapter.config">;

using Unsupported = ErrorOf<ErrorKind::kModelFile, "adapter.unsupported">;

// Whether a field has no effect: null, false, "", 0, [] or {}.
bool IsOff(const Json& value) {
  if (value.is_null() || value == false) return true;
  if (value.is_string()) return value.get_ref<const std::string&>().empty();
  return value.is_structured() && value.empty();
}

const Json& Member(const Json& object, std::string_view key) {
  static const Json kNull;
  const auto found = object.find(key);
  return found == object.end() ? kNull : *found;
}

Result<Json> ParseConfig(std::string_view text) {
  if (text.size() > kMaxConfigBytes) {
    return BadConfig("adapter_config.json has {} bytes, expected at most {}", text.size(),
                     kMaxConfigBytes);
  }
  auto json = ReadJson(text, {.depth = kMaxConfigDepth});
  if (json && json->is_object()) return *std::move(json);
  return BadConfig("adapter_config.json {}, expected a JSON object",
                   json ? "is not an object" : json.error().ToString());
}

Result<double> Positive(const Json& object, std::string_view key) {
  const Json& value = Member(object, key);
  const double number = value.is_number() ? value.get<double>() : 0;
  if (std::isfinite(number) && number > 0) return number;
  return BadConfig("{} is {}, expected a number above 0", key,
                   ShownName(value.dump(-1, ' ', true, Json::error_handler_t::replace)));
}

// Patterns of plain names: PEFT takes regular expressions, of which names with \. or ^ are read.
Result<PeftConfig::Patterns> ReadPatterns(const Json& object, std::string_view key) {
  const Json& value = Member(object, key);
  PeftConfig::Patterns patterns;
  if (IsOff(value)) return patterns;
  if (!value.is_object()) return BadConfig("{} is not an object, expected numbers by module", key);
  for (const auto& [pattern, unused] : value.items()) {
    RL_ASSIGN_OR_RETURN(const double number, Positive(value, pattern));
    std::string plain;
    for (size_t i = 0; i < pattern.size(); ++i) {
      if (pattern[i] == '\\' && pattern.substr(i, 2) == "\\.") continue;
      plain += pattern[i];
    }
    const auto is_plain = [](char c) {
      return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
             c == '_' || c == '.';
    };
    const std::string_view body = std::string_view(plain).substr(plain.starts_with('^') ? 1 : 0);
    if (body.empty() || !std::ranges::all_of(body, is_plain)) {
      return Unsupported("{} has the regular expression '{}', expected names of modules", key,
                         ShownName(pattern));
    }
    patterns.emplace_back(plain, number);
  }
  return patterns;
}

Status CheckUnsupported(const Json& json) {
  for (const auto& [key, value] : json.items()) {
    if (std::ranges::find(kHarmless, key) != kHarmless.end()) continue;
    if (std::ranges::find(kRead, key) != kRead.end() || IsOff(value)) continue;
    return Unsupported("the adapter has '{}' set, which may change its results and is not known",
                       ShownName(key));
  }
  for (const char* key : {"fan_in_fan_out", "modules_to_save"}) {
    if (IsOff(Member(json, key))) continue;
    return Unsupported("the adapter has '{}' set, expected a plain LoRA without it", key);
  }
  const Json& bias = Member(json, "bias");
  if (!IsOff(bias) && bias != "none") {
    return Unsupported("the adapter trains biases, expected \"bias\": \"none\"");
  }
  const Json& start = Member(json, "init_lora_weights");
  if (start.is_string() &&
      std::ranges::find(kPlainStarts, start.get<std::string>()) == kPlainStarts.end()) {
    return Unsupported(
        "the adapter began with '{}', which changes the base model; expected an adapter of the "
        "model as it is (PEFT converts: save_pretrained with path_initial_model_for_weight_"
        "conversion)",
        ShownName(start.get<std::string>()));
  }
  return OkStatus();
}

Status ReadTargets(const Json& json, PeftConfig& config) {
  const Json& targets = Member(json, "target_modules");
  if (targets.is_array()) {
    for (const Json& target : targets) {
      if (!target.is_string()) return BadConfig("target_modules has a member that is not a string");
      config.targets.push_back(target.get<std::string>());
    }
  } else if (!targets.is_null() && !targets.is_string()) {
    return BadConfig("target_modules is neither a list nor a string");
  }
  const Json& layers = Member(json, "layers_to_transform");
  const Json list = layers.is_number() ? Json::array({layers}) : layers;
  if (list.is_null()) return OkStatus();
  if (!list.is_array()) return BadConfig("layers_to_transform is neither a number nor a list");
  for (const Json& layer : list) {
    if (!layer.is_number_integer()) return BadConfig("layers_to_transform has no whole numbers");
    config.layers.insert(layer.get<int64_t>());
  }
  return OkStatus();
}

Result<PeftConfig> ParseMlx(const Json& json) {
  const Json& kind = Member(json, "fine_tune_type");
  if (!kind.is_null() && kind != "lora") {
    return Unsupported("fine_tune_type is {}, expected \"lora\"",
                       ShownName(kind.dump(-1, ' ', true, Json::error_handler_t::replace)));
  }
  PeftConfig config;
  RL_ASSIGN_OR_RETURN(config.mlx_scale, Positive(Member(json, "lora_parameters"), "scale"));
  return config;
}

double OrPattern(const PeftConfig::Patterns& patterns, std::string_view module, double otherwise) {
  for (const auto& [pattern, value] : patterns) {
    const std::string_view text = pattern;
    if (text.starts_with('^') ? module == text.substr(1) : module == text) return value;
    if (!text.starts_with('^') && module.size() > text.size() && module.ends_with(text) &&
        module[module.size() - text.size() - 1] == '.') {
      return value;
    }
  }
  return otherwise;
}

}  // namespace

Result<PeftConfig> PeftConfig::Parse(std::string_view text) {
  RL_ASSIGN_OR_RETURN(const Json json, ParseConfig(text));
  if (Member(json, "lora_parameters").is_object()) return ParseMlx(json);
  const Json& type = Member(json, "peft_type");
  if (type != "LORA") {
    return Unsupported("peft_type is {}, expected \"LORA\"",
                       ShownName(type.dump(-1, ' ', true, Json::error_handler_t::replace)));
  }
  RL_RETURN_IF_ERROR(CheckUnsupported(json));
  PeftConfig config;
  RL_ASSIGN_OR_RETURN(config.rank, Positive(json, "r"));
  RL_ASSIGN_OR_RETURN(config.alpha, Positive(json, "lora_alpha"));
  config.rs_lora = !IsOff(Member(json, "use_rslora"));
  RL_ASSIGN_OR_RETURN(config.rank_pattern, ReadPatterns(json, "rank_pattern"));
  RL_ASSIGN_OR_RETURN(config.alpha_pattern, ReadPatterns(json, "alpha_pattern"));
  RL_RETURN_IF_ERROR(ReadTargets(json, config));
  return config;
}

Result<PeftConfig> PeftConfig::Read(const std::string& path) {
  RL_ASSIGN_OR_RETURN(const MmapFile file, MmapFile::Open(path));
  const auto bytes = file.bytes();
  return Parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

Result<double> PeftConfig::ScaleOf(std::string_view module, int64_t rank_found) const {
  if (mlx_scale) return *mlx_scale;
  const double expected = OrPattern(rank_pattern, module, rank);
  if (expected != static_cast<double>(rank_found)) {
    return MakeError(ErrorKind::kModelFile, "adapter.rank",
                     "the adapter of '{}' has rank {}, its configuration says {}",
                     ShownName(module), rank_found, expected);
  }
  return OrPattern(alpha_pattern, module, alpha) / (rs_lora ? std::sqrt(expected) : expected);
}

}  // namespace rullama::adapters
