#include "backends/vulkan/join_cache.h"

#include <cstddef>
#include <cstring>
#include <optional>
#include <spirv-tools/libspirv.hpp>
#include <string>
#include <vector>

#include "backends/gpu/bytes.h"
#include "backends/gpu/hash.h"
#include "backends/gpu/in_parallel.h"

namespace rullama::vulkan {
namespace {

// With its size, so that no two lists of texts or words look the same.
template <typename Sequence>
uint64_t HashWithSize(const Sequence& sequence, uint64_t hash) {
  const auto size = static_cast<uint32_t>(sequence.size());
  return gpu::HashOf(sequence, gpu::HashOf(std::span(&size, 1), hash));
}

// The key names no device and no driver: the code is the same for all of them.
std::string KeyOf(std::span<const TaskSource> tasks) {
  uint64_t hash = gpu::kEmptyHash;
  for (const TaskSource& task : tasks) {
    hash = HashWithSize(task.constants, HashWithSize(task.name, hash));
  }
  return std::string("vulkan joined shaders ") + RULLAMA_VERSION + " " + std::to_string(hash);
}

// The head of a blob. What it says of the sources covers all that the code depends on.
struct Head {
  uint64_t sources = 0;       // hash of the shaders, of this folder's sources and of SPIRV-Tools
  uint32_t shared_bytes = 0;  // Joined::shared_bytes
  uint32_t words = 0;         // of the code, which follows
};

std::vector<std::byte> Pack(uint64_t sources, const Joined& joined) {
  std::vector<std::byte> bytes;
  gpu::Append(Head{sources, joined.shared_bytes, static_cast<uint32_t>(joined.code.size())}, bytes);
  gpu::AppendBytes(std::as_bytes(std::span(joined.code)), bytes);
  return bytes;
}

// Nothing if the blob is not whole or of other sources.
std::optional<Joined> Unpack(uint64_t sources, std::span<const std::byte> bytes) {
  Head head;
  if (!gpu::Take(bytes, head)) return std::nullopt;
  if (head.sources != sources || bytes.size() != head.words * sizeof(uint32_t)) return std::nullopt;
  Joined joined{.code = Spirv(head.words), .shared_bytes = head.shared_bytes};
  std::memcpy(joined.code.data(), bytes.data(), bytes.size());
  return joined;
}

}  // namespace

uint64_t HashOfSources(std::span<const uint32_t> driver, std::span<const TaskSource> tasks) {
  const std::string_view join_sources = RULLAMA_JOIN_SOURCES, tools = spvSoftwareVersionString();
  uint64_t hash = HashWithSize(tools, HashWithSize(join_sources, gpu::kEmptyHash));
  hash = HashWithSize(driver, hash);
  for (const TaskSource& task : tasks) {
    hash = HashWithSize(task.constants, HashWithSize(task.code, hash));
  }
  return hash;
}

Joined JoinSources(std::span<const uint32_t> driver, std::span<const TaskSource> tasks,
                   const std::atomic<bool>& stop) {
  std::vector<Spirv> codes(tasks.size());
  gpu::InParallel(tasks.size(), [&](size_t i) {
    CheckStop(stop);
    codes[i] = WithConstants(tasks[i].code, tasks[i].constants);
  });
  const uint32_t threads = tasks.front().constants.front();
  return Join(WithConstants(driver, {&threads, 1}), codes, threads, stop);
}

Joined JoinWithCache(const sdk::Host& host, std::span<const uint32_t> driver,
                     std::span<const TaskSource> tasks, const std::atomic<bool>& stop) {
  const std::string key = KeyOf(tasks);
  const uint64_t sources = HashOfSources(driver, tasks);
  if (auto kept = Unpack(sources, host.BlobGet(key))) return *std::move(kept);
  Joined joined = JoinSources(driver, tasks, stop);
  // A host that keeps nothing costs the next start some time.
  static_cast<void>(host.BlobPut(key, Pack(sources, joined)));
  return joined;
}

}  // namespace rullama::vulkan
