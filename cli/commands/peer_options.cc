#include "cli/commands/peer_options.h"

#include <CLI/CLI.hpp>

#include "cli/commands/options.h"
#include "core/base/error_of.h"
#include "core/config/device_codecs.h"

namespace rullama::cli {
namespace {

constexpr const char* kGroup = "As in llama.cpp";
constexpr const char* kGpuLayers = "--gpu-layers";
constexpr const char* kDefaultCacheType = "f16";  // of llama.cpp

using Refused = ErrorOf<ErrorKind::kUsage, "usage.option">;

// The number of layers; nothing for all of them.
Result<std::optional<int64_t>> ParseGpuLayers(const std::string& text) {
  if (text == "auto" || text == "all" || text == "-1") return std::optional<int64_t>();
  const auto layers = ParseInteger(text, kGpuLayers, 0, INT32_MAX);
  if (!layers) return Refused("{}: found '{}', expected a number, auto or all", kGpuLayers, text);
  return std::optional(*layers);
}

Status ApplyGpuLayers(const std::string& text, LayeredConfig& config) {
  RL_ASSIGN_OR_RETURN(const auto layers, ParseGpuLayers(text));
  const std::string& backend = config.values().backend.name;
  const bool on_host = layers && *layers == 0;
  if (!on_host && !config.values().backend.devices.empty()) return OkStatus();
  if (config.origin("backend.name") == Origin::kFlag) {
    if (!on_host || backend == "cpu") return OkStatus();
    return Refused(
        "{} 0 leaves the model to the processor, but --backend is '{}'; give one of both",
        kGpuLayers, backend);
  }
  if (on_host) return config.Set("backend.name", "cpu", Origin::kFlag, kGpuLayers);
  if (backend != "cpu") return OkStatus();
  return config.Set("backend.name", "auto", Origin::kFlag, kGpuLayers);
}

// llama-bench has 1 and 0 for on and off.
Status CheckFlashAttention(const std::string& mode) {
  if (mode == "on" || mode == "auto" || mode == "1") return OkStatus();
  if (mode == "off" || mode == "0") {
    return Refused("--flash-attn cannot be off: each backend has one kernel for attention");
  }
  return Refused("--flash-attn: found '{}', expected on, auto or off", mode);
}

Status ApplyCacheTypes(const PeerOptions& options, LayeredConfig& config) {
  if (!options.cache_type_k && !options.cache_type_v) return OkStatus();
  const std::string k = options.cache_type_k.value_or(kDefaultCacheType);
  const std::string v = options.cache_type_v.value_or(kDefaultCacheType);
  RL_RETURN_IF_ERROR(config.Set("context.kv_dtype", k, Origin::kFlag, "--cache-type-k"));
  return config.Set("context.v_dtype", v, Origin::kFlag, "--cache-type-v");
}

Status ApplyCpuMoe(const PeerOptions& options, LayeredConfig& config) {
  constexpr const char* kKey = "placement.host_expert_layers";
  if (options.cpu_moe_layers) {
    return config.Set(kKey, *options.cpu_moe_layers, Origin::kFlag, "--n-cpu-moe");
  }
  if (!options.cpu_moe) return OkStatus();
  return config.Set(kKey, std::to_string(INT32_MAX), Origin::kFlag, "--cpu-moe");
}

Status ApplyTensorSplit(const std::string& text, LayeredConfig& config) {
  std::vector<std::string> shares = CLI::detail::split(text, ',');
  // Whole numbers would be numbers of layers.
  for (std::string& share : shares) {
    if (share.find('.') == std::string::npos) share += ".0";
  }
  return config.SetList("placement.split", shares, Origin::kFlag, "--tensor-split");
}

Status CheckSplitMode(const std::string& mode) {
  if (mode == "layer" || mode == "none") return OkStatus();
  if (mode != "row" && mode != "tensor") {
    return Refused("--split-mode: found '{}', expected layer or none", mode);
  }
  return Refused("--split-mode cannot be {}: each layer runs on one device; use layer", mode);
}

// With --split-mode none, the device of --main-gpu runs the model alone.
Status ApplyMainGpu(const PeerOptions& options, LayeredConfig& config) {
  constexpr const char* kMainGpu = "--main-gpu";
  const std::vector<DeviceSetting> devices = config.values().backend.devices;
  const bool alone = options.split_mode == "none";
  const std::string main = options.main_gpu.value_or("0");
  const int64_t last = devices.empty() ? INT32_MAX : std::ssize(devices) - 1;
  RL_ASSIGN_OR_RETURN(const int64_t index, ParseInteger(main, kMainGpu, 0, last));
  if (devices.empty()) {
    if (!options.main_gpu) return OkStatus();
    return config.Set("backend.device", main, Origin::kFlag, kMainGpu);
  }
  if (!alone) return OkStatus();
  const std::string only = DeviceListCodec().Print({devices[static_cast<size_t>(index)]});
  return config.Set("backend.devices", only, Origin::kFlag, "--split-mode");
}

Status ApplyDevices(const PeerOptions& options, LayeredConfig& config) {
  if (options.split_mode) RL_RETURN_IF_ERROR(CheckSplitMode(*options.split_mode));
  if (options.tensor_split) RL_RETURN_IF_ERROR(ApplyTensorSplit(*options.tensor_split, config));
  return ApplyMainGpu(options, config);
}

}  // namespace

std::vector<std::string> DeviceNames(const std::vector<std::string>& typed) {
  std::vector<std::string> names;
  for (const std::string& text : typed) {
    std::string& name = names.emplace_back(text == "none" ? "cpu" : text);
    // Backends have lower-case names.
    const bool of_peer = !name.empty() && name[0] >= 'A' && name[0] <= 'Z';
    if (!of_peer || name.find(':') != std::string::npos) continue;
    name = CLI::detail::to_lower(name);
    const size_t index = name.find_first_of("0123456789");
    if (index != std::string::npos) name.insert(index, ":");
  }
  return names;
}

void AddPeerOptions(CLI::App& app, PeerOptions& options) {
  const auto add = [&app](const char* names, std::optional<std::string>& value, const char* help,
                          const char* text) {
    app.add_option(names, value, help)->take_last()->option_text(text)->group(kGroup);
  };
  add("--gpu-layers,--n-gpu-layers", options.gpu_layers,
      "Also -ngl. 0: the cpu backend; auto, all or as many as there are: the best device, unless "
      "--backend names one",
      "N");
  add("--flash-attn", options.flash_attention,
      "Also -fa. on or auto: nothing to do, attention is always fused", "MODE");
  add("--cache-type-k", options.cache_type_k,
      "Also -ctk. Type of the keys in the cache: f32, f16, bf16, q8_0 or q4_0", "TYPE");
  add("--cache-type-v", options.cache_type_v, "Also -ctv. Type of the values in it", "TYPE");
  add("--n-cpu-moe", options.cpu_moe_layers,
      "Also -ncmoe. The experts of the first N layers run on the processor and stay in its memory",
      "N");
  add("--tensor-split", options.tensor_split,
      "Also -ts. Shares of the layers, one for each of --devices (-dev): 3,1", "LIST");
  add("--split-mode", options.split_mode,
      "Also -sm. layer: each of --devices has some layers; none: the one of --main-gpu has all",
      "MODE");
  add("--main-gpu", options.main_gpu,
      "Also -mg. With --split-mode none the index of one of --devices; without --devices that of a "
      "device of the backend",
      "N");
  app.add_flag("--cpu-moe", options.cpu_moe, "Also -cmoe. The same for all layers")->group(kGroup);
}

Status ApplyPeerOptions(const PeerOptions& options, LayeredConfig& config) {
  if (options.gpu_layers) RL_RETURN_IF_ERROR(ApplyGpuLayers(*options.gpu_layers, config));
  if (options.flash_attention) RL_RETURN_IF_ERROR(CheckFlashAttention(*options.flash_attention));
  RL_RETURN_IF_ERROR(ApplyCacheTypes(options, config));
  RL_RETURN_IF_ERROR(ApplyDevices(options, config));
  return ApplyCpuMoe(options, config);
}

Status CheckGpuLayers(const PeerOptions& options, int64_t layers) {
  if (!options.gpu_layers) return OkStatus();
  RL_ASSIGN_OR_RETURN(const auto asked, ParseGpuLayers(*options.gpu_layers));
  if (!asked || *asked == 0 || *asked >= layers) return OkStatus();
  return Refused(
      "{} {} would split the {} layers of this model; name the devices of both parts, such as "
      "--devices cpu,vulkan --tensor-split {},{}, or give 0 for the processor, or all",
      kGpuLayers, *asked, layers, layers - *asked, *asked);
}

}  // namespace rullama::cli
