// Options of llama.cpp that mean something here under another name: -ngl, -fa, -ctk, -ctv, -ncmoe,
// -cmoe, -dev, -ts, -sm and -mg.
// Thread safety: none; used by main's thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/config/layered_config.h"

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11's own name
class App;
}  // namespace CLI

namespace rullama::cli {

struct PeerOptions {
  std::optional<std::string> gpu_layers;
  std::optional<std::string> flash_attention;
  std::optional<std::string> cache_type_k;
  std::optional<std::string> cache_type_v;
  std::optional<std::string> cpu_moe_layers;
  bool cpu_moe = false;  // of all layers
  std::optional<std::string> tensor_split;
  std::optional<std::string> split_mode;
  std::optional<std::string> main_gpu;
};

void AddPeerOptions(CLI::App& app, PeerOptions& options);

// Sets what the options stand for: the backend for --gpu-layers, unless --backend was given,
// context.kv_dtype for the types of the cache, placement.host_expert_layers for --n-cpu-moe and
// --cpu-moe, placement.split for --tensor-split, and the device of --main-gpu. Errors (kUsage):
// usage.option for what rullama cannot do, and those of LayeredConfig::Set.
Status ApplyPeerOptions(const PeerOptions& options, LayeredConfig& config);

// The names of --devices as the configuration has them: "Vulkan1" of llama.cpp is "vulkan:1", and
// "none" is the processor.
std::vector<std::string> DeviceNames(const std::vector<std::string>& typed);

// The number of layers on the GPU alone does not say which device has the others. Error
// usage.option (kUsage) if --gpu-layers asks for a part of its layers.
Status CheckGpuLayers(const PeerOptions& options, int64_t layers);

}  // namespace rullama::cli
