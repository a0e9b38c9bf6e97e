#include "models/gemma4/files/synth.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "models/common/files/synth_file.h"
#include "models/gemma4/files/synth_metadata.h"

namespace rullama {
namespace {

// The rope table as the model wants it; layers that keep the residual stream from growing.
std::vector<float> VectorValues(const TensorSpec& spec, const Gemma4Config& config) {
  if (spec.name == "rope_freqs.weight") return config.rope_factors;
  if (spec.name.ends_with("layer_output_scale.weight")) return {0.95f};
  return {};
}

}  // namespace

Status WriteSynthetic(const Gemma4Config& config, const SyntheticOptions& options,
                      const std::filesystem::path& path) {
  SyntheticFile file{
      .architecture = config.architecture(),
      .file_type = options.mix.file_type,
      .tensors = ExpectedTensors(config),
      .write_metadata =
          [&](GgufWriter& writer) {
            return WriteMetadata(config, config.architecture(), options, writer);
          },
      .vector_values = [&](const TensorSpec& spec) { return VectorValues(spec, config); }};
  // Published files tie the head to the embedding, and keep K and V on layers that share a cache.
  std::erase_if(file.tensors,
                [](const TensorSpec& spec) { return spec.presence == Presence::kOptional; });
  file.dtypes =
      SyntheticTypes(options.mix, file.tensors, config.layer_count(), config.experts.count);
  return WriteSyntheticFile(file, options, path);
}

}  // namespace rullama
