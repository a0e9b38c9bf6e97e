#include "engine/loading/model_fingerprint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <array>
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

ModelFingerprint HashOf(std::string_view text) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return ModelFingerprint{hash.high64, hash.low64};
}

}  // namespace

Result<std::vector<ModelFingerprint>> FingerprintsOf(const ModelSession& session) {
  const GgufFile& file = *session.model().file.file;
  RL_RETURN_IF_ERROR(file.CheckUnchanged());
  XXH64_hash_t adapters = 0;
  for (const SyntheticConstant& constant : session.model().adapters.constants) {
    adapters = XXH3_64bits_withSeed(constant.name.data(), constant.name.size(), adapters);
    adapters = XXH3_64bits_withSeed(constant.bytes.data(), constant.bytes.size(), adapters);
  }
  std::string backend = session.devices().backend + "\n";
  for (const DeviceDescription& device : session.devices().DescribeLayerDevices()) {
    backend += fmt::format("{}\n{}\n", device.name, device.driver);
  }
  backend += fmt::format("{}\n", fmt::join(session.placement().layer_devices, ","));
  for (size_t i = 0; i < session.devices().layer_devices; ++i) {
    for (const auto& [key, value] : OptionsOf(session.config().backend, i)) {
      backend += fmt::format("{}={}\n", key, value);
    }
  }
  const CacheTypes caches = KvDtypeFor(session.config(), session.devices().backend);
  // In the order of FingerprintName.
  return std::vector<ModelFingerprint>{HashOf(file, 0),
                                       HashOf(fmt::format("{}", adapters)),
                                       HashOf(backend),
                                       HashOf(ToString(caches)),
                                       HashOf(fmt::format("{}", session.chunk())),
                                       HashOf(RULLAMA_VERSION)};
}

std::string_view FingerprintName(size_t index) {
  constexpr std::array<std::string_view, 6> kNames = {
      "model",    "adapters",          "backend, device or threads",
      "KV cache", "length of a chunk", "version of rullama"};
  return index < kNames.size() ? kNames[index] : "file of the towers";
}

ModelFingerprint Joined(std::span<const ModelFingerprint> parts) {
  const XXH128_hash_t hash = XXH3_128bits(parts.data(), parts.size_bytes());
  return ModelFingerprint{hash.high64, hash.low64};
}

Result<ModelFingerprint> FingerprintWithTowers(const ModelSession& session,
                                               const ModelFingerprint& model) {
  const GgufFile& towers = session.model().tower_file();
  if (&towers == session.model().file.file.get()) return model;
  RL_RETURN_IF_ERROR(towers.CheckUnchanged());
  return HashOf(towers, XXH3_64bits(model.data(), sizeof(model)));
}

}  // namespace rullama
