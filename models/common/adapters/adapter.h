// Low-rank adapters (LoRA): files of four kinds, checked against a model and brought into one form
// (models/common/adapter.h).
//
//   PEFT       a folder with adapter_config.json and adapter_model.safetensors, or that file
//   GGUF       llama.cpp's: general.type = adapter, adapter.type = lora
//   MLX        adapters.safetensors next to adapter_config.json with lora_parameters
//   Rust rullama   safetensors with names lora.blk.N.MODULE.A and rank and alpha as metadata
//
// Each tensor of a file is used or named in an error; nothing that would change numbers is passed
// over. There are two exceptions, which a warning names: K and V of layers that read another
// layer's cache, which no pass over the model uses, and image and audio towers, whose tensors of
// PEFT files take no adapter here.
//
// Thread safety: pure functions. Errors (kModelFile unless said):
// adapter.file (neither format, or no configuration next to it), adapter.config,
// adapter.unsupported, adapter.unknown_tensor, adapter.pair, adapter.rank, adapter.shape,
// adapter.value, adapter.arch, adapter.empty; safetensors.*, gguf.*, io.*.
#pragma once

#include <string>
#include <vector>

#include "core/base/status.h"
#include "models/common/adapter.h"
#include "models/common/graph/tensor_table.h"

namespace rullama {

// The model that an adapter is for.
struct AdapterTarget {
  std::string architecture;  // general.architecture
  std::vector<TensorSpec> tensors;
};

// Reads the adapter that `path` names.
Result<Adapter> ReadAdapter(const std::string& path, const AdapterTarget& target);

}  // namespace rullama
