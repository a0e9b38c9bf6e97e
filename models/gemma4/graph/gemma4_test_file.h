// Small Gemma 4 model files in memory for tests, with ways to spoil them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/gguf/gguf.h"
#include "core/gguf/gguf_writer.h"

namespace rullama {

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// A model file under construction: metadata in `writer`, tensors in `tensors`; every f32 value of
// every tensor is 1 unless `values` says otherwise.
class Gemma4TestFile {
 public:
  struct Tensor {
    std::string name;
    std::vector<uint64_t> dims;  // in the order of the file: fastest first
    DType dtype = DType::kF32;
    std::vector<float> values = {};
    std::vector<std::byte> bytes = {};  // of other types; all 0 if there are none
  };

  GgufWriter writer;
  std::vector<Tensor> tensors;

  // Layers s,s,g own a cache, s,g share one; per-layer embeddings; every usual tensor.
  static Gemma4TestFile Small() {
    Gemma4TestFile file;
    file.SetMetadata();
    file.Add("token_embd.weight", {kWidth, kVocabulary});
    file.Add("rope_freqs.weight", {kGlobalDim / 2});
    file.Add("per_layer_token_embd.weight", {kPle * kLayers, kVocabulary});
    file.Add("per_layer_model_proj.weight", {kWidth, kPle * kLayers});
    file.Add("per_layer_proj_norm.weight", {kPle});
    for (uint64_t i = 0; i < kLayers; ++i) file.AddLayer(i);
    file.Add("output_norm.weight", {kWidth});
    return file;
  }

  static constexpr uint64_t kLayers = 5;
  static constexpr uint64_t kOwned = 3;
  static constexpr uint64_t kWidth = 32;
  static constexpr uint64_t kHeads = 2;
  static constexpr uint64_t kSlidingDim = 8;
  static constexpr uint64_t kGlobalDim = 16;
  static constexpr uint64_t kFfn = 48;
  static constexpr uint64_t kPle = 4;
  static constexpr uint64_t kVocabulary = 20;

  void Add(std::string name, std::vector<uint64_t> dims) {
    tensors.push_back({.name = std::move(name), .dims = std::move(dims)});
  }
  Tensor& Find(std::string_view name) {
    for (Tensor& tensor : tensors) {
      if (tensor.name == name) return tensor;
    }
    RL_CHECK(false);
  }
  void Remove(std::string_view name) {
    std::erase_if(tensors, [name](const Tensor& tensor) { return tensor.name == name; });
  }
  void Rename(std::string_view from, std::string to) { Find(from).name = std::move(to); }
  template <typename T>
  void SetArray(std::string_view key, const std::vector<T>& values) {
    RL_CHECK(writer.SetArray(key, std::span<const T>(values)).has_value());
  }

  // The bytes of the file; keep them while the GgufFile parsed from them is in use.
  [[nodiscard]] std::vector<std::byte> Bytes() {
    for (const Tensor& tensor : tensors) {
      RL_CHECK(writer.AddTensor(tensor.name, tensor.dtype, tensor.dims).has_value());
    }
    auto header = writer.EncodeHeader();
    RL_CHECK(header.has_value());
    std::vector<std::byte> bytes = *std::move(header);
    for (const Tensor& tensor : tensors) {
      bytes.resize((bytes.size() + kGgufDefaultAlignment - 1) / kGgufDefaultAlignment *
                   kGgufDefaultAlignment);
      AppendData(tensor, bytes);
    }
    bytes.resize((bytes.size() + kGgufDefaultAlignment - 1) / kGgufDefaultAlignment *
                 kGgufDefaultAlignment);
    return bytes;
  }

 private:
  void SetMetadata() {
    writer.Set("general.architecture", "gemma4");
    writer.Set("gemma4.block_count", uint32_t{kLayers});
    writer.Set("gemma4.embedding_length", uint32_t{kWidth});
    writer.Set("gemma4.context_length", uint32_t{64});
    writer.Set("gemma4.feed_forward_length", uint32_t{kFfn});
    writer.Set("gemma4.attention.head_count", uint32_t{kHeads});
    writer.Set("gemma4.attention.head_count_kv", uint32_t{1});
    writer.Set("gemma4.attention.key_length", uint32_t{kGlobalDim});
    writer.Set("gemma4.attention.value_length", uint32_t{kGlobalDim});
    writer.Set("gemma4.attention.key_length_swa", uint32_t{kSlidingDim});
    writer.Set("gemma4.attention.value_length_swa", uint32_t{kSlidingDim});
    writer.Set("gemma4.attention.layer_norm_rms_epsilon", 1e-6F);
    writer.Set("gemma4.attention.sliding_window", uint32_t{8});
    writer.Set("gemma4.attention.shared_kv_layers", uint32_t{kLayers - kOwned});
    writer.Set("gemma4.rope.freq_base", 1e6F);
    writer.Set("gemma4.rope.freq_base_swa", 1e4F);
    writer.Set("gemma4.rope.dimension_count", uint32_t{kGlobalDim});
    writer.Set("gemma4.rope.dimension_count_swa", uint32_t{kSlidingDim});
    writer.Set("gemma4.final_logit_softcapping", 30.0F);
    writer.Set("gemma4.embedding_length_per_layer_input", uint32_t{kPle});
    const bool pattern[] = {true, true, false, true, false};
    writer.SetArray("gemma4.attention.sliding_window_pattern", std::span<const bool>(pattern));
  }

  void AddLayer(uint64_t index) {
    const bool global = index == 2 || index == 4;
    const uint64_t dim = global ? kGlobalDim : kSlidingDim;
    const std::string p = "blk." + std::to_string(index) + ".";
    Add(p + "attn_norm.weight", {kWidth});
    Add(p + "attn_q.weight", {kWidth, kHeads * dim});
    Add(p + "attn_q_norm.weight", {dim});
    if (index < kOwned) {
      Add(p + "attn_k.weight", {kWidth, dim});
      Add(p + "attn_k_norm.weight", {dim});
      Add(p + "attn_v.weight", {kWidth, dim});
    }
    Add(p + "attn_output.weight", {kHeads * dim, kWidth});
    Add(p + "post_attention_norm.weight", {kWidth});
    Add(p + "ffn_norm.weight", {kWidth});
    Add(p + "ffn_gate.weight", {kWidth, kFfn});
    Add(p + "ffn_up.weight", {kWidth, kFfn});
    Add(p + "ffn_down.weight", {kFfn, kWidth});
    Add(p + "post_ffw_norm.weight", {kWidth});
    Add(p + "inp_gate.weight", {kWidth, kPle});
    Add(p + "proj.weight", {kPle, kWidth});
    Add(p + "post_norm.weight", {kWidth});
    Add(p + "layer_output_scale.weight", {1});
  }

  static void AppendData(const Tensor& tensor, std::vector<std::byte>& bytes) {
    uint64_t elements = 1;
    for (const uint64_t dim : tensor.dims) elements *= dim;
    const uint64_t size = RowBytes(tensor.dtype, elements);
    const size_t start = bytes.size();
    bytes.resize(start + size);
    std::ranges::copy(tensor.bytes, bytes.begin() + static_cast<ptrdiff_t>(start));
    if (tensor.dtype != DType::kF32) return;
    for (uint64_t i = 0; i < elements; ++i) {
      const float value = i < tensor.values.size() ? tensor.values[i] : 1.0F;
      std::memcpy(bytes.data() + start + i * sizeof(float), &value, sizeof(float));
    }
  }
};

}  // namespace rullama
