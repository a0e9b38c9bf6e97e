// A small adapter for tests/data/tiny-e2b-Q4_K_M.gguf.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace rullama {

// Writes a PEFT folder of rank 1 that adapts blk.0.ffn_down, which has 512 columns of input and 256
// of output in the model; with another number of `inputs` the adapter does not fit.
inline void WriteAdapterFolder(const std::filesystem::path& folder, int64_t inputs) {
  std::filesystem::create_directories(folder);
  const std::string prefix = "base_model.model.model.layers.0.mlp.down_proj.lora_";
  const int64_t a_bytes = inputs * 4;
  const nlohmann::json header = {
      {prefix + "A.weight",
       {{"dtype", "F32"}, {"shape", {1, inputs}}, {"data_offsets", {0, a_bytes}}}},
      {prefix + "B.weight",
       {{"dtype", "F32"}, {"shape", {256, 1}}, {"data_offsets", {a_bytes, a_bytes + 1024}}}}};
  const std::string text = header.dump();
  std::ofstream tensors(folder / "adapter_model.safetensors", std::ios::binary);
  for (size_t i = 0; i < 8; ++i) tensors.put(static_cast<char>(text.size() >> (8 * i)));
  tensors << text;
  for (int64_t i = 0; i < inputs + 256; ++i) {
    const float value = i % 3 == 0 ? 0.5F : -0.25F;
    tensors.write(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  std::ofstream(folder / "adapter_config.json")
      << R"({"peft_type":"LORA","r":1,"lora_alpha":4,"target_modules":["down_proj"]})";
}

}  // namespace rullama
