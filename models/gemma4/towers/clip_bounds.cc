#include "models/gemma4/towers/clip_bounds.h"

#include "core/base/error_of.h"

namespace rullama::gemma4 {
namespace {

constexpr size_t kNumbersOfLayer = 4;

using BadBounds = ErrorOf<ErrorKind::kModelFile, "model.clip_bounds">;

Result<GgufNumbers<float>> ReadFloats(const GgufFile& file, const TensorInfo& tensor,
                                      uint64_t count) {
  if (tensor.dtype == DType::kF32 && tensor.elements() == count) {
    RL_ASSIGN_OR_RETURN(const auto bytes, file.Load(tensor));
    return GgufNumbers<float>(bytes);
  }
  return BadBounds("tensor '{}' has {} elements of {}, expected {} of f32", tensor.name,
                   tensor.elements(), NameOf(tensor.dtype), count);
}

// Replaces `value` by the scalar of this name, if there is one.
Status ReadScalar(const GgufFile& file, const std::string& name, float& value) {
  const TensorInfo* tensor = file.FindTensor(name);
  if (tensor == nullptr) return OkStatus();
  RL_ASSIGN_OR_RETURN(const auto numbers, ReadFloats(file, *tensor, 1));
  value = numbers[0];
  return OkStatus();
}

Status CheckRange(const std::string& layer, std::string_view side, const ClipRange& range) {
  // Written so that NaN fails.
  if (range.low <= range.high) return OkStatus();
  return BadBounds("the {} of '{}' is clipped to {} to {}, expected an ascending range", side,
                   layer, range.low, range.high);
}

}  // namespace

std::vector<std::string> LayersOfBlocks(std::string_view prefix, int64_t blocks,
                                        std::span<const std::string_view> linears) {
  std::vector<std::string> layers;
  layers.reserve(static_cast<size_t>(blocks) * linears.size());
  for (int64_t i = 0; i < blocks; ++i) {
    for (const std::string_view linear : linears) {
      layers.push_back(fmt::format("{}{}.{}", prefix, i, linear));
    }
  }
  return layers;
}

Result<ClipTable> ReadClipBounds(const GgufFile& file, std::span<const std::string> layers,
                                 std::string_view table) {
  GgufNumbers<float> numbers;
  const TensorInfo* tensor = table.empty() ? nullptr : file.FindTensor(table);
  if (tensor != nullptr) {
    RL_ASSIGN_OR_RETURN(numbers, ReadFloats(file, *tensor, kNumbersOfLayer * layers.size()));
  }
  ClipTable found;
  for (size_t i = 0; i < layers.size(); ++i) {
    const std::string& layer = layers[i];
    ClipBounds bounds;
    if (!numbers.empty()) {
      const size_t at = kNumbersOfLayer * i;
      // Four zeros are Ollama's entry for a layer without bounds.
      const bool clipped =
          numbers[at] != 0 || numbers[at + 1] != 0 || numbers[at + 2] != 0 || numbers[at + 3] != 0;
      if (clipped) {
        bounds = {.input = {numbers[at], numbers[at + 1]},
                  .output = {numbers[at + 2], numbers[at + 3]}};
      }
    }
    RL_RETURN_IF_ERROR(ReadScalar(file, layer + ".input_min", bounds.input.low));
    RL_RETURN_IF_ERROR(ReadScalar(file, layer + ".input_max", bounds.input.high));
    RL_RETURN_IF_ERROR(ReadScalar(file, layer + ".output_min", bounds.output.low));
    RL_RETURN_IF_ERROR(ReadScalar(file, layer + ".output_max", bounds.output.high));
    RL_RETURN_IF_ERROR(CheckRange(layer, "input", bounds.input));
    RL_RETURN_IF_ERROR(CheckRange(layer, "output", bounds.output));
    if (!bounds.input.open() || !bounds.output.open()) found.emplace(layer, bounds);
  }
  return found;
}

}  // namespace rullama::gemma4
