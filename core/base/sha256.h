// SHA-256 (FIPS 180-4), for names of contents, sums of files and for comparing secrets; not fast
// enough for files of weights on processors without instructions for it. Thread safety: pure
// functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace rullama {

using Sha256Digest = std::array<uint8_t, 32>;

// The digest of bytes that come in pieces.
class Sha256Stream {
 public:
  void Add(std::span<const std::byte> bytes);
  // Nothing is added after it.
  [[nodiscard]] Sha256Digest Finish();

 private:
  static constexpr size_t kBlockBytes = 64;

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, kBlockBytes> rest_ = {};  // the first bytes of a block
  uint64_t bytes_ = 0;
};

Sha256Digest Sha256(std::span<const std::byte> bytes);
Sha256Digest Sha256(std::string_view text);

// 64 lower-case hexadecimal digits.
std::string HexText(const Sha256Digest& digest);

}  // namespace rullama
