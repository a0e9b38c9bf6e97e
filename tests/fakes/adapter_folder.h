// Small adapters for tests/data/tiny-e2b-Q4_K_M.gguf.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace rullama {

struct AdapterFolderOptions {
  int64_t rank = 1;
  int64_t period = 3;  // of the values
  double alpha = 4;    // the factor is alpha / rank
  // With an output of 256 columns in the model.
  std::string module = "layers.0.mlp.down_proj";
};

// Writes a PEFT folder that adapts one module, unless told otherwise blk.0.ffn_down, which has 512
// columns of input in the model; with another number of `inputs` the adapter does not fit.
inline void WriteAdapterFolder(const std::filesystem::path& folder, int64_t inputs,
                               const AdapterFolderOptions& options = {}) {
  constexpr int64_t kOutputs = 256;
  std::filesystem::create_directories(folder);
  const std::string prefix = "base_model.model.model." + options.module + ".lora_";
  const int64_t a_bytes = options.rank * inputs * 4;
  const int64_t b_bytes = options.rank * kOutputs * 4;
  const nlohmann::json header = {
      {prefix + "A.weight",
       {{"dtype", "F32"}, {"shape", {options.rank, inputs}}, {"data_offsets", {0, a_bytes}}}},
      {prefix + "B.weight",
       {{"dtype", "F32"},
        {"shape", {kOutputs, options.rank}},
        {"data_offsets", {a_bytes, a_bytes + b_bytes}}}}};
  const std::string text = header.dump();
  std::ofstream tensors(folder / "adapter_model.safetensors", std::ios::binary);
  for (size_t i = 0; i < 8; ++i) tensors.put(static_cast<char>(text.size() >> (8 * i)));
  tensors << text;
  for (int64_t i = 0; i < options.rank * (inputs + kOutputs); ++i) {
    const float value = i % options.period == 0 ? 0.5F : -0.25F;
    tensors.write(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  const nlohmann::json config = {
      {"peft_type", "LORA"},
      {"r", options.rank},
      {"lora_alpha", options.alpha},
      {"target_modules", {options.module.substr(options.module.rfind('.') + 1)}}};
  std::ofstream(folder / "adapter_config.json") << config.dump();
}

}  // namespace rullama
