// Any bytes give a result or an error; what parses can be read everywhere, and f32 tensors survive
// being written.
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/check.h"
#include "core/safetensors/safetensors.h"

namespace rullama {
namespace {

void UseAndWrite(const SafetensorsFile& file) {
  std::vector<std::vector<float>> values;
  std::vector<SafetensorsOutput> outputs;
  values.reserve(file.tensors().size());
  for (const SafetensorsTensor& tensor : file.tensors()) {
    auto floats = file.Floats(tensor);
    if (!floats) continue;
    values.push_back(*std::move(floats));
    outputs.push_back({tensor.name, tensor.shape, values.back()});
  }
  const std::vector<std::byte> bytes = EncodeSafetensors(outputs, file.metadata());
  const auto twin = SafetensorsFile::Parse(bytes);
  RL_CHECK(twin.has_value());
  RL_CHECK(twin->tensors().size() == outputs.size());
  RL_CHECK(twin->metadata() == file.metadata());
}

}  // namespace
}  // namespace rullama

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = rullama::SafetensorsFile::Parse(std::as_bytes(std::span(data, size)));
  if (!file) {
    RL_CHECK(!file.error().id.empty() && !file.error().message.empty());
    return 0;
  }
  rullama::UseAndWrite(*file);
  return 0;
}
