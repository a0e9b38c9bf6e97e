// Low-rank adapters (LoRA) of Gemma 4: files of four kinds, checked against a model and brought
// into one form.
//
//   PEFT       a folder with adapter_config.json and adapter_model.safetensors, or that file
//   GGUF       llama.cpp's: general.type = adapter, adapter.type = lora
//   MLX        adapters.safetensors beside adapter_config.json with lora_parameters
//   Rust rullama   safetensors with names lora.blk.N.MODULE.A and rank and alpha as metadata
//
// Each tensor of a file is used or named in an error; nothing that would change numbers is passed
// over. K and V of layers that read another layer's cache are the exception: no pass over the model
// uses them, so they are named in a note.
//
// Thread safety: pure functions; an Adapter is plain data. Errors (kModelFile unless said):
// adapter.file (neither format, or no configuration beside it), adapter.config,
// adapter.unsupported, adapter.unknown_tensor, adapter.pair, adapter.rank, adapter.shape,
// adapter.value, adapter.arch, adapter.empty; safetensors.*, gguf.*, io.*.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/passes/adapt.h"
#include "models/gemma4/graph/config.h"
#include "models/gemma4/graph/model.h"

namespace rullama {

// The adapter of one weight.
struct AdapterWeight {
  std::string tensor;   // of the model's table: "blk.0.attn_q.weight"
  int64_t experts = 0;  // of a 3-D weight; 0: a matrix
  int64_t rank = 0;
  int64_t inputs = 0;
  int64_t outputs = 0;   // of each expert
  double scale = 1;      // of B (A x), as the file says
  std::vector<float> a;  // [rank, inputs], or [experts, rank, inputs]
  std::vector<float> b;  // [outputs, rank], or [experts, outputs, rank]
};

struct Adapter {
  std::string path;
  std::vector<AdapterWeight> weights;  // by name of the tensor
  std::vector<std::string> warnings;

  // "96 tensors on 48 weights, rank 4, scale 2"
  [[nodiscard]] std::string Describe() const;
};

// Reads the adapter that `path` names, for a model with these hyperparameters.
Result<Adapter> ReadAdapter(const std::string& path, const Gemma4Config& config);

// An adapter and the user's factor.
struct ScaledAdapter {
  Adapter adapter;
  double scale = 1;
};

// All adapters of a model, for the pass AdaptProducts and a WeightSource: one pair for each adapted
// weight, in which the adapters lie behind each other along the rank and all factors are part of B.
struct ModelAdapters {
  std::vector<LowRankPair> pairs;
  std::vector<SyntheticConstant> constants;
};
ModelAdapters JoinAdapters(std::span<const ScaledAdapter> adapters);

}  // namespace rullama
