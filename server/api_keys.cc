#include "server/api_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <random>

#include "core/base/printable.h"

namespace rullama::server {
namespace {

constexpr size_t kMinKeyBytes = 8;
constexpr size_t kMaxKeyBytes = 256;
constexpr size_t kMaxFileBytes = size_t{1} << 20U;
constexpr size_t kBlockBytes = 64;  // of SHA-256

bool IsVisible(char c) { return c > ' ' && c <= '~'; }

std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && !IsVisible(text.front())) text.remove_prefix(1);
  while (!text.empty() && !IsVisible(text.back())) text.remove_suffix(1);
  return text;
}

std::string XorAll(std::string text, char mask) {
  for (char& c : text) c = static_cast<char>(c ^ mask);
  return text;
}

// The same for a key however often and in whatever order the files are read.
uint64_t NumberOf(const Sha256Digest& digest) {
  uint64_t number = 0;
  for (size_t i = 0; i < sizeof(number); ++i) number = (number << 8U) | digest[i];
  return std::max<uint64_t>(number, 1);
}

// The size is not asked for first: a pipe of a shell, `<(command)`, has none.
Result<std::string> ReadKeyFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxFileBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad()) {
    return MakeError(ErrorKind::kIo, "io.open", "cannot read the file of keys '{}'; check its name",
                     ShownName(path));
  }
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() <= kMaxFileBytes) return text;
  return MakeError(ErrorKind::kUsage, "server.api_key",
                   "the file of keys '{}' has more than {} bytes, expected one key a line; check "
                   "its name",
                   ShownName(path), kMaxFileBytes);
}

}  // namespace

ApiKeys::ApiKeys() {
  std::random_device random;
  while (salt_.size() < kBlockBytes) salt_ += static_cast<char>(random());
}

ApiKeys::ApiKeys(std::string secret) : salt_(std::move(secret)) { salt_.resize(kBlockBytes); }

ApiKeys ApiKeys::WithoutKeys() const {
  ApiKeys keys = *this;
  keys.keys_.clear();
  return keys;
}

// HMAC (RFC 2104) under a key of one block.
Sha256Digest ApiKeys::DigestOf(std::string_view key) const {
  const Sha256Digest inner = Sha256(XorAll(salt_, 0x36) + std::string(key));
  return Sha256(XorAll(salt_, 0x5c) + std::string(inner.begin(), inner.end()));
}

Status ApiKeys::AddLines(std::string_view text, std::string_view source) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = Trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!line.empty() && line.front() != '#') RL_RETURN_IF_ERROR(Add(line, source));
  }
  return OkStatus();
}

Status ApiKeys::AddFile(const std::string& path) {
  RL_ASSIGN_OR_RETURN(const std::string text, ReadKeyFile(path));
  const size_t before = keys_.size();
  RL_RETURN_IF_ERROR(AddLines(text, fmt::format("'{}'", ShownName(path))));
  if (keys_.size() > before) return OkStatus();
  return MakeError(ErrorKind::kUsage, "server.api_key",
                   "the file of keys '{}' has no key, expected at least one a line, as KEY or "
                   "NAME:KEY; write one, or do not name the file",
                   ShownName(path));
}

Status ApiKeys::Add(std::string_view line, std::string_view source) {
  const size_t colon = line.find(':');
  const std::string_view key =
      Trimmed(colon == std::string_view::npos ? line : line.substr(colon + 1));
  if (key.size() < kMinKeyBytes || key.size() > kMaxKeyBytes ||
      !std::all_of(key.begin(), key.end(), IsVisible)) {
    return MakeError(
        ErrorKind::kUsage, "server.api_key",
        "{}: key {} has {} bytes, expected {} to {} visible characters of ASCII; write "
        "one key a line, as KEY or NAME:KEY",
        source, keys_.size() + 1, key.size(), kMinKeyBytes, kMaxKeyBytes);
  }
  std::string name = fmt::format("key{}", keys_.size() + 1);
  const bool named = colon != std::string_view::npos;
  if (named) name = ShownName(Trimmed(line.substr(0, colon)));
  keys_.push_back({DigestOf(key), Sha256(key), std::move(name), named});
  return OkStatus();
}

std::optional<KeyOwner> ApiKeys::Find(std::string_view key) const {
  const Sha256Digest digest = DigestOf(key);
  std::optional<KeyOwner> owner;
  for (size_t i = 0; i < keys_.size(); ++i) {
    unsigned difference = 0;
    for (size_t k = 0; k < digest.size(); ++k) {
      difference |= static_cast<unsigned>(digest[k] ^ keys_[i].digest[k]);
    }
    if (difference != 0) continue;
    const auto lasting = [&key = keys_[i]](const Sha256Digest& of) {
      return key.named ? "name " + key.name : "key " + HexText(of);
    };
    owner =
        KeyOwner{NumberOf(digest), keys_[i].name, lasting(digest), lasting(keys_[i].plain_digest)};
  }
  return owner;
}

}  // namespace rullama::server
