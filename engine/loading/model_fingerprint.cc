#include "engine/loading/model_fingerprint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <string>

#include "core/config/device_name.h"

namespace rullama {
namespace {

// All bytes of the file. The hash of each part is the seed of the next.
ModelFingerprint HashOf(const GgufFile& file, uint64_t seed) {
  XXH128_hash_t hash = {};
  for (const std::span<const std::byte> part : file.parts()) {
    hash = XXH3_128bits_withSeed(part.data(), part.size(), seed);
    seed = XXH3_64bits(&hash, sizeof(hash));
  }
  return ModelFingerprint{hash.high64, hash.low64};
}

}  // namespace

Result<ModelFingerprint> FingerprintOf(const ModelSession& session) {
  const GgufFile& file = *session.model().file.file;
  RL_RETURN_IF_ERROR(file.CheckUnchanged());
  std::string settings =
      fmt::format("{}\n{}\n{}\n", RULLAMA_VERSION, session.devices().backend, session.chunk());
  for (const DeviceDescription& device : session.devices().DescribeLayerDevices()) {
    settings += fmt::format("{}\n{}\n", device.name, device.driver);
  }
  settings += fmt::format("{}\n", fmt::join(session.placement().layer_devices, ","));
  for (size_t i = 0; i < session.devices().layer_devices; ++i) {
    for (const auto& [key, value] : OptionsOf(session.config().backend, i)) {
      settings += fmt::format("{}={}\n", key, value);
    }
  }
  uint64_t seed = XXH3_64bits(settings.data(), settings.size());
  for (const SyntheticConstant& constant : session.model().adapters.constants) {
    seed = XXH3_64bits_withSeed(constant.name.data(), constant.name.size(), seed);
    seed = XXH3_64bits_withSeed(constant.bytes.data(), constant.bytes.size(), seed);
  }
  return HashOf(file, seed);
}

Result<ModelFingerprint> FingerprintWithTowers(const ModelSession& session,
                                               const ModelFingerprint& model) {
  const GgufFile& towers = session.model().tower_file();
  if (&towers == session.model().file.file.get()) return model;
  RL_RETURN_IF_ERROR(towers.CheckUnchanged());
  return HashOf(towers, XXH3_64bits(model.data(), sizeof(model)));
}

}  // namespace rullama
