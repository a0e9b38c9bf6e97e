// Writers of low-rank adapters, the counterpart of adapter.h: PEFT's folder and llama.cpp's file.
//
// Thread safety: pure functions but for the files. Errors: adapter.write (kUsage: weights of
// several ranks or factors, experts, nothing at all); io.* and gguf.* of writing. A file appears
// under its name only when it is complete.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "models/common/adapter.h"
#include "models/common/graph/tensor_table.h"

namespace rullama {

// The projections of attention and feed-forward and those of the per-layer embeddings in the
// layers, as far as a model with these tensors computes them.
std::vector<AdaptableWeight> AdaptableWeights(const std::vector<TensorSpec>& tensors);

// Writes adapter_config.json and adapter_model.safetensors into the folder `path`, which exists.
Status WritePeftAdapter(const Adapter& adapter, const AdapterFileOptions& options,
                        const std::filesystem::path& path);
// Writes a GGUF file with general.type = adapter, for models of this architecture.
Status WriteGgufAdapter(const Adapter& adapter, const std::string& architecture,
                        const std::filesystem::path& path);

}  // namespace rullama
