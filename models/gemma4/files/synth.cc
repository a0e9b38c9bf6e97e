#include "models/gemma4/files/synth.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>
#include <vector>

#include "core/gguf/gguf_writer.h"
#include "models/gemma4/files/synth_blocks.h"
#include "models/gemma4/files/synth_metadata.h"

namespace rullama {
namespace {

// Bytes made at a time: large enough to keep threads and disk busy, small beside a model.
constexpr uint64_t kPieceBytes = 64ull << 20;

// Norm weights near 1, the rope table as the model wants it.
std::vector<float> VectorValues(const TensorSpec& spec, const Gemma4Config& config, uint64_t seed) {
  if (spec.name == "rope_freqs.weight") return config.rope_factors;
  std::vector<float> values(static_cast<size_t>(spec.dims[0]));
  if (spec.name.ends_with("layer_output_scale.weight")) {
    std::ranges::fill(values, 0.95f);
    return values;
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const uint64_t word = TensorSeed(seed + i, spec.name);
    values[i] = 0.9f + 0.2f * static_cast<float>(word >> 40) * 0x1p-24f;
  }
  return values;
}

// A piece of whole blocks, filled by several threads.
void FillPiece(DType dtype, uint64_t seed, uint64_t first_block, float deviation, int threads,
               std::span<std::byte> piece) {
  const uint64_t block_bytes = InfoOf(dtype).block_bytes;
  const uint64_t blocks = piece.size() / block_bytes;
  std::vector<std::jthread> workers;
  for (int worker = 0; worker < threads; ++worker) {
    const auto index = static_cast<uint64_t>(worker);
    const auto count = static_cast<uint64_t>(threads);
    const uint64_t begin = blocks * index / count;
    const uint64_t end = blocks * (index + 1) / count;
    workers.emplace_back([=] {
      FillRandomBlocks(dtype, seed, first_block + begin, deviation,
                       piece.subspan(begin * block_bytes, (end - begin) * block_bytes));
    });
  }
}

Status AppendMatrix(const TensorSpec& spec, DType dtype, const SyntheticOptions& options,
                    GgufOutput& output, uint64_t& done, uint64_t total) {
  uint64_t elements = 1;
  for (const int64_t dim : spec.dims) elements *= static_cast<uint64_t>(dim);
  const uint64_t bytes = RowBytes(dtype, elements);
  const uint64_t block_bytes = InfoOf(dtype).block_bytes;
  // Inputs of a product are normalised, so this keeps outputs near 1.
  const float deviation = 1.0f / std::sqrt(static_cast<float>(spec.dims.back()));
  const uint64_t seed = TensorSeed(options.seed, spec.name);
  std::vector<std::byte> piece;
  for (uint64_t at = 0; at < bytes; at += piece.size()) {
    if (options.cancel != nullptr && options.cancel->load(std::memory_order_relaxed)) {
      return MakeError(ErrorKind::kRuntime, "run.cancelled", "cancelled; no file was written");
    }
    piece.resize(std::min(kPieceBytes / block_bytes * block_bytes, bytes - at));
    FillPiece(dtype, seed, at / block_bytes, deviation, options.threads, piece);
    RL_RETURN_IF_ERROR(output.Append(piece));
    done += piece.size();
    if (options.on_progress) options.on_progress(done, total);
  }
  return OkStatus();
}

}  // namespace

std::vector<DType> SyntheticTypes(const QuantMix& mix, std::span<const TensorSpec> specs,
                                  const Gemma4Config& config) {
  std::vector<QuantTensor> tensors;
  for (const TensorSpec& spec : specs) {
    tensors.push_back({spec.name, static_cast<uint32_t>(spec.dims.size()),
                       static_cast<uint64_t>(spec.dims.back())});
  }
  // Tensors that no mix changes have the type that converters write.
  const DType projection = mix.base == DType::kBF16 ? DType::kBF16 : DType::kF16;
  std::vector<DType> types;
  for (const auto& chosen : ChooseTypes(mix, tensors, config.layer_count(), config.experts.count)) {
    const bool is_projection = tensors[types.size()].name == "per_layer_model_proj.weight";
    types.push_back(chosen.value_or(is_projection ? projection : DType::kF32));
  }
  return types;
}

Status WriteSynthetic(const Gemma4Config& config, const SyntheticOptions& options,
                      const std::filesystem::path& path) {
  RL_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  for (const auto& input : options.read) RL_RETURN_IF_ERROR(file.CheckIsNot(input));
  GgufWriter writer;
  RL_RETURN_IF_ERROR(WriteMetadata(config, options, writer));
  std::vector<TensorSpec> specs;
  for (TensorSpec& spec : ExpectedTensors(config)) {
    // Published files tie the head to the embedding, and keep K and V on layers that share a cache.
    if (spec.presence != Presence::kOptional) specs.push_back(std::move(spec));
  }
  const std::vector<DType> types = SyntheticTypes(options.mix, specs, config);
  uint64_t total = 0;
  for (size_t i = 0; i < specs.size(); ++i) {
    std::vector<uint64_t> dims(specs[i].dims.rbegin(), specs[i].dims.rend());
    uint64_t elements = 1;
    for (const uint64_t dim : dims) elements *= dim;
    total += RowBytes(types[i], elements);
    RL_RETURN_IF_ERROR(writer.AddTensor(specs[i].name, types[i], dims));
  }
  RL_ASSIGN_OR_RETURN(GgufOutput output, writer.Begin(std::move(file)));
  uint64_t done = 0;
  for (size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].is_vector()) {
      const auto values = VectorValues(specs[i], config, options.seed);
      RL_RETURN_IF_ERROR(output.Append(std::as_bytes(std::span(values))));
      done += values.size() * sizeof(float);
      continue;
    }
    RL_RETURN_IF_ERROR(AppendMatrix(specs[i], types[i], options, output, done, total));
  }
  return output.Finish();
}

}  // namespace rullama
