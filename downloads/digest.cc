#include "downloads/digest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/evp.h>

#include <array>
#include <string_view>

#include "core/base/check.h"

namespace rullama::downloads {

std::string Digest::ToString() const {
  return fmt::format("{}:{}", kind == DigestKind::kSha256 ? "sha256" : "sha1", hex);
}

bool IsHex(std::string_view text, size_t digits) {
  return text.size() == digits && text.find_first_not_of("0123456789abcdef") == text.npos;
}

void Hasher::Free::operator()(evp_md_ctx_st* context) const { ::EVP_MD_CTX_free(context); }

Hasher::Hasher(DigestKind kind, uint64_t bytes) : context_(::EVP_MD_CTX_new()) {
  RL_CHECK(context_ != nullptr);
  const EVP_MD* const function = kind == DigestKind::kSha256 ? ::EVP_sha256() : ::EVP_sha1();
  RL_CHECK(::EVP_DigestInit_ex(context_.get(), function, nullptr) == 1);
  if (kind != DigestKind::kGitBlob) return;
  const std::string head = fmt::format("blob {}", bytes);
  Add(std::as_bytes(std::span(head.c_str(), head.size() + 1)));
}

void Hasher::Add(std::span<const std::byte> bytes) {
  RL_CHECK(::EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1);
}

std::string Hasher::Hex() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest = {};
  unsigned int size = 0;
  RL_CHECK(::EVP_DigestFinal_ex(context_.get(), digest.data(), &size) == 1);
  return fmt::format("{:02x}", fmt::join(digest.begin(), digest.begin() + size, ""));
}

}  // namespace rullama::downloads
