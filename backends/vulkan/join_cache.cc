#include "backends/vulkan/join_cache.h"

#include <cstddef>
#include <cstring>
#include <optional>
#include <spirv-tools/libspirv.hpp>
#include <string>
#include <vector>

#include "backends/gpu/in_parallel.h"

namespace rullama::vulkan {
namespace {

// FNV-1a over words.
class WordHash {
 public:
  void Add(uint32_t word) { value_ = (value_ ^ word) * 0x100000001B3; }
  void Add(std::span<const uint32_t> words) {
    Add(static_cast<uint32_t>(words.size()));
    for (const uint32_t word : words) Add(word);
  }
  void Add(std::string_view text) {
    Add(static_cast<uint32_t>(text.size()));
    for (const char byte : text) Add(uint32_t{static_cast<uint8_t>(byte)});
  }
  [[nodiscard]] uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xCBF29CE484222325;
};

// No device and no driver: the code is the same for all of them.
std::string KeyOf(std::span<const TaskSource> tasks) {
  WordHash hash;
  for (const TaskSource& task : tasks) {
    hash.Add(task.name);
    hash.Add(task.constants);
  }
  return std::string("vulkan joined shaders ") + RULLAMA_VERSION + " " +
         std::to_string(hash.value());
}

// The head of a blob. What it says of the sources covers all that the code depends on.
struct Head {
  uint64_t sources = 0;       // hash of the shaders, of this folder's sources and of SPIRV-Tools
  uint32_t shared_bytes = 0;  // Joined::shared_bytes
  uint32_t words = 0;         // of the code, which follows
};

uint64_t HashOfSources(std::span<const uint32_t> driver, std::span<const TaskSource> tasks) {
  WordHash hash;
  hash.Add(std::string_view(RULLAMA_JOIN_SOURCES));
  hash.Add(std::string_view(spvSoftwareVersionString()));
  hash.Add(driver);
  for (const TaskSource& task : tasks) {
    hash.Add(task.code);
    hash.Add(task.constants);
  }
  return hash.value();
}

std::vector<std::byte> Pack(uint64_t sources, const Joined& joined) {
  const Head head{sources, joined.shared_bytes, static_cast<uint32_t>(joined.code.size())};
  std::vector<std::byte> bytes(sizeof(head) + joined.code.size() * sizeof(uint32_t));
  std::memcpy(bytes.data(), &head, sizeof(head));
  std::memcpy(bytes.data() + sizeof(head), joined.code.data(), bytes.size() - sizeof(head));
  return bytes;
}

// Nothing if the blob is not whole or of other sources.
std::optional<Joined> Unpack(uint64_t sources, std::span<const std::byte> bytes) {
  Head head;
  if (bytes.size() < sizeof(head)) return std::nullopt;
  std::memcpy(&head, bytes.data(), sizeof(head));
  const std::span<const std::byte> code = bytes.subspan(sizeof(head));
  if (head.sources != sources || code.size() != head.words * sizeof(uint32_t)) return std::nullopt;
  Joined joined{.code = Spirv(head.words), .shared_bytes = head.shared_bytes};
  std::memcpy(joined.code.data(), code.data(), code.size());
  return joined;
}

}  // namespace

Joined JoinSources(std::span<const uint32_t> driver, std::span<const TaskSource> tasks) {
  std::vector<Spirv> codes(tasks.size());
  gpu::InParallel(tasks.size(),
                  [&](size_t i) { codes[i] = WithConstants(tasks[i].code, tasks[i].constants); });
  const uint32_t threads = tasks.front().constants.front();
  return Join(WithConstants(driver, {&threads, 1}), codes, threads);
}

Joined JoinWithCache(const sdk::Host& host, std::span<const uint32_t> driver,
                     std::span<const TaskSource> tasks) {
  const std::string key = KeyOf(tasks);
  const uint64_t sources = HashOfSources(driver, tasks);
  if (auto kept = Unpack(sources, host.BlobGet(key))) return *std::move(kept);
  Joined joined = JoinSources(driver, tasks);
  // A host that keeps nothing costs the next start some time.
  static_cast<void>(host.BlobPut(key, Pack(sources, joined)));
  return joined;
}

}  // namespace rullama::vulkan
