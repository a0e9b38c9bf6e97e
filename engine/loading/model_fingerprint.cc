#include "engine/loading/model_fingerprint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <string>

#include "core/config/device_name.h"
#include "core/gguf/loaded_tensor.h"

namespace rullama {
namespace {

// Bytes of a tensor that are read at a time.
constexpr uint64_t kPieceBytes = uint64_t{4} << 20;

// A hash of parts, each of which is hashed with that of the parts before it as its seed.
class ChainedHash {
 public:
  explicit ChainedHash(uint64_t seed) : seed_(seed) {}

  void Add(std::span<const std::byte> part) {
    hash_ = XXH3_128bits_withSeed(part.data(), part.size(), seed_);
    seed_ = XXH3_64bits(&hash_, sizeof(hash_));
  }
  [[nodiscard]] ModelFingerprint value() const { return {hash_.high64, hash_.low64}; }

 private:
  uint64_t seed_;
  XXH128_hash_t hash_ = {};
};

ModelFingerprint HashOf(std::string_view text) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return ModelFingerprint{hash.high64, hash.low64};
}

}  // namespace

Result<ModelFingerprint> FingerprintOf(const GgufFile& file, uint64_t seed) {
  ChainedHash hash(seed);
  uint64_t bytes = 0;
  for (const std::span<const std::byte> part : file.parts()) {
    hash.Add(part);
    bytes += part.size();
  }
  if (bytes == file.total_bytes()) return hash.value();
  for (const TensorInfo& tensor : file.tensors()) {
    for (uint64_t first = 0; first < tensor.bytes; first += kPieceBytes) {
      const uint64_t count = std::min(kPieceBytes, tensor.bytes - first);
      RL_ASSIGN_OR_RETURN(const LoadedTensor piece, LoadedTensor::Load(file, tensor, first, count));
      hash.Add(piece.bytes());
    }
  }
  return hash.value();
}

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
  RL_ASSIGN_OR_RETURN(const ModelFingerprint model, FingerprintOf(file, 0));
  // In the order of FingerprintName.
  return std::vector<ModelFingerprint>{model,
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
  return FingerprintOf(towers, XXH3_64bits(model.data(), sizeof(model)));
}

}  // namespace rullama
