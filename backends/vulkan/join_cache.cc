#include "backends/vulkan/join_cache.h"

#include <cstring>
#include <spirv-tools/libspirv.hpp>
#include <spirv/unified1/spirv.hpp>

namespace rullama::vulkan {
namespace {

// FNV-1a over words.
class WordHash {
 public:
  void Add(std::span<const uint32_t> words) {
    Add(static_cast<uint32_t>(words.size()));
    for (const uint32_t word : words) Add(word);
  }
  [[nodiscard]] uint64_t value() const { return value_; }

 private:
  void Add(uint32_t word) { value_ = (value_ ^ word) * 0x100000001B3; }

  uint64_t value_ = 0xCBF29CE484222325;
};

}  // namespace

std::string JoinedKey(std::span<const uint32_t> driver, std::span<const TaskSource> tasks) {
  WordHash hash;
  hash.Add(driver);
  for (const TaskSource& task : tasks) {
    hash.Add(task.code);
    hash.Add(task.constants);
  }
  return std::string("joined shaders ") + RULLAMA_JOIN_SOURCES + " " + spvSoftwareVersionString() +
         " " + std::to_string(tasks.size()) + " " + std::to_string(hash.value());
}

// The bytes of shared memory, then the code, in the machine's byte order.
std::vector<std::byte> PackJoined(const Joined& joined) {
  std::vector<std::byte> bytes(sizeof(uint32_t) * (1 + joined.code.size()));
  std::memcpy(bytes.data(), &joined.shared_bytes, sizeof(uint32_t));
  std::memcpy(bytes.data() + sizeof(uint32_t), joined.code.data(),
              joined.code.size() * sizeof(uint32_t));
  return bytes;
}

std::optional<Joined> UnpackJoined(std::span<const std::byte> bytes) {
  if (bytes.size() % sizeof(uint32_t) != 0) return std::nullopt;
  if (bytes.size() <= sizeof(uint32_t) * (1 + kHeaderWords)) return std::nullopt;
  Joined joined;
  std::memcpy(&joined.shared_bytes, bytes.data(), sizeof(uint32_t));
  joined.code.resize(bytes.size() / sizeof(uint32_t) - 1);
  std::memcpy(joined.code.data(), bytes.data() + sizeof(uint32_t),
              joined.code.size() * sizeof(uint32_t));
  if (joined.code.front() != spv::MagicNumber) return std::nullopt;
  return joined;
}

}  // namespace rullama::vulkan
