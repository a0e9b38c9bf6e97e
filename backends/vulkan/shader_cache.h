// Shaders with their constants in place (WithConstants of join.h), kept from one start to the next:
// putting the constants in takes some 50 ms of a processor, reading the result next to nothing.
//
// Thread safety: any thread may call any function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backends/vulkan/join_cache.h"

namespace rullama::vulkan {

class ShaderCache {
 public:
  // The most bytes of code that are kept: some 800 shaders. A model has a hundred.
  static constexpr size_t kMaxBytes = size_t{32} << 20;

  explicit ShaderCache(size_t max_bytes = kMaxBytes) : max_bytes_(max_bytes) {}

  // Takes what Save() gave. Of bytes that are not whole, what comes before the damage is taken.
  void Load(std::span<const std::byte> saved);
  // Shaders that were asked for come before those that were only loaded.
  [[nodiscard]] std::vector<std::byte> Save() const;

  // WithConstants(), whose result it keeps. A shader of another build is replaced.
  Spirv Get(const TaskSource& source);

 private:
  using Key = std::pair<std::string, std::vector<uint32_t>>;  // name and constants
  struct Kept {
    uint64_t sources = 0;  // HashOfSources()
    Spirv code;
    bool used = false;  // asked for since Load()
  };

  const size_t max_bytes_;
  mutable std::mutex mutex_;  // guards what follows
  std::map<Key, Kept> shaders_;
};

}  // namespace rullama::vulkan
