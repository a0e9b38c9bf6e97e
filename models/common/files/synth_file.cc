#include "models/common/files/synth_file.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <thread>
#include <utility>

#include "core/gguf/atomic_file.h"
#include "models/common/files/synth_blocks.h"

namespace rullama {
namespace {

// Bytes made at a time: large enough to keep threads and disk busy, small compared with a model.
constexpr uint64_t kPieceBytes = 64ull << 20;

// Norm weights near 1.
std::vector<float> NormValues(const TensorSpec& spec, uint64_t seed) {
  std::vector<float> values(static_cast<size_t>(spec.dims[0]));
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
                       piece.subspan(static_cast<size_t>(begin * block_bytes),
                                     static_cast<size_t>((end - begin) * block_bytes)));
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
    piece.resize(
        static_cast<size_t>(std::min(kPieceBytes / block_bytes * block_bytes, bytes - at)));
    FillPiece(dtype, seed, at / block_bytes, deviation, options.threads, piece);
    RL_RETURN_IF_ERROR(output.Append(piece));
    done += piece.size();
    if (options.on_progress) options.on_progress(done, total);
  }
  return OkStatus();
}

Status WriteGeneralMetadata(const SyntheticFile& content, const SyntheticOptions& options,
                            GgufWriter& writer) {
  RL_RETURN_IF_ERROR(writer.Set("general.architecture", content.architecture));
  RL_RETURN_IF_ERROR(writer.Set("general.type", content.type));
  RL_RETURN_IF_ERROR(writer.Set("general.name", options.name));
  RL_RETURN_IF_ERROR(writer.Set("general.file_type", content.file_type));
  return writer.Set("general.quantization_version", uint32_t{2});
}

}  // namespace

std::vector<DType> SyntheticTypes(const QuantMix& mix, std::span<const TensorSpec> specs,
                                  int64_t layers, int64_t experts) {
  std::vector<QuantTensor> tensors;
  tensors.reserve(specs.size());
  for (const TensorSpec& spec : specs) {
    tensors.push_back({spec.name, static_cast<uint32_t>(spec.dims.size()),
                       static_cast<uint64_t>(spec.dims.back())});
  }
  // Tensors that no mix changes have the type that converters write.
  const DType projection = mix.base == DType::kBF16 ? DType::kBF16 : DType::kF16;
  std::vector<DType> types;
  types.reserve(specs.size());
  for (const auto& chosen : ChooseTypes(mix, tensors, {layers, experts})) {
    const bool is_projection = tensors[types.size()].name == "per_layer_model_proj.weight";
    types.push_back(chosen.value_or(is_projection ? projection : DType::kF32));
  }
  return types;
}

Status WriteSyntheticFile(const SyntheticFile& content, const SyntheticOptions& options,
                          const std::filesystem::path& path) {
  RL_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  for (const auto& input : options.read) RL_RETURN_IF_ERROR(file.CheckIsNot(input));
  GgufWriter writer;
  RL_RETURN_IF_ERROR(WriteGeneralMetadata(content, options, writer));
  RL_RETURN_IF_ERROR(content.write_metadata(writer));
  const std::vector<TensorSpec>& specs = content.tensors;
  const std::vector<DType>& types = content.dtypes;
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
      std::vector<float> values;
      if (content.vector_values) values = content.vector_values(specs[i]);
      if (values.empty()) values = NormValues(specs[i], options.seed);
      RL_RETURN_IF_ERROR(output.Append(std::as_bytes(std::span(values))));
      done += values.size() * sizeof(float);
      continue;
    }
    RL_RETURN_IF_ERROR(AppendMatrix(specs[i], types[i], options, output, done, total));
  }
  return output.Finish();
}

}  // namespace rullama
