// The sum that names a file in a store of models, computed while its bytes arrive.
// Thread safety: value types; one thread at a time for each object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

struct evp_md_ctx_st;

namespace rullama::downloads {

enum class DigestKind : uint8_t {
  kSha256,
  kGitBlob,  // SHA-1 of "blob N", a NUL and the N bytes: git's name of a file
};

struct Digest {
  DigestKind kind = DigestKind::kSha256;
  std::string hex;  // lower case: 64 digits of SHA-256, 40 of git

  // "sha256:..." or "sha1:..."
  [[nodiscard]] std::string ToString() const;
};

// Whether `text` is `digits` lower-case hexadecimal digits.
bool IsHex(std::string_view text, size_t digits);

class Hasher {
 public:
  // For a file of `bytes` bytes.
  Hasher(DigestKind kind, uint64_t bytes);
  void Add(std::span<const std::byte> bytes);
  // Ends the sum, once.
  std::string Hex();

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

}  // namespace rullama::downloads
