#include "downloads/url.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <memory>

#include "core/base/printable.h"

namespace rullama::downloads {
namespace {

struct FreeCurlUrl {
  void operator()(CURLU* url) const { ::curl_url_cleanup(url); }
};
using CurlUrl = std::unique_ptr<CURLU, FreeCurlUrl>;

std::string PartOf(const CurlUrl& url, CURLUPart part, unsigned flags = 0) {
  char* text = nullptr;
  if (::curl_url_get(url.get(), part, &text, flags) != CURLUE_OK) return {};
  std::string out(text);
  ::curl_free(text);
  return out;
}

std::string Lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

tl::unexpected<Error> BadUrl(const std::string& text) {
  // A query may be a signature.
  return MakeError(ErrorKind::kIo, "pull.redirect",
                   "found the address '{}', expected one that begins with http:// or https:// and "
                   "names a host",
                   ShownName(text.substr(0, text.find('?'))));
}

Result<Url> ReadUrl(const CurlUrl& url, const std::string& shown) {
  ::curl_url_set(url.get(), CURLUPART_FRAGMENT, nullptr, 0);
  Url out{.text = PartOf(url, CURLUPART_URL),
          .scheme = Lower(PartOf(url, CURLUPART_SCHEME)),
          .host = Lower(PartOf(url, CURLUPART_HOST)),
          .port = PartOf(url, CURLUPART_PORT, CURLU_DEFAULT_PORT)};
  const bool known = out.scheme == "http" || out.scheme == "https";
  const bool user =
      !PartOf(url, CURLUPART_USER).empty() || !PartOf(url, CURLUPART_PASSWORD).empty();
  if (!known || user || out.host.empty() || out.port.empty()) return BadUrl(shown);
  return out;
}

bool IsPublicV4(uint32_t address) {
  struct Block {
    uint32_t begin;
    int bits;
  };
  // RFC 6890 and multicast.
  constexpr Block kNotPublic[] = {
      {0x00000000, 8},  {0x0A000000, 8},  {0x64400000, 10}, {0x7F000000, 8},  {0xA9FE0000, 16},
      {0xAC100000, 12}, {0xC0000000, 24}, {0xC0A80000, 16}, {0xC6120000, 15}, {0xE0000000, 3}};
  return std::ranges::none_of(kNotPublic, [address](const Block& block) {
    return (address ^ block.begin) >> (32 - block.bits) == 0;
  });
}

uint32_t BigEndianWord(const uint8_t* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

bool IsPublicV6(const in6_addr& address) {
  const uint8_t* bytes = address.s6_addr;
  constexpr std::array<uint8_t, 12> kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};
  constexpr std::array<uint8_t, 12> kNat64 = {0, 0x64, 0xFF, 0x9B};
  if (std::equal(kMapped.begin(), kMapped.end(), bytes) ||
      std::equal(kNat64.begin(), kNat64.end(), bytes)) {
    return IsPublicV4(BigEndianWord(bytes + 12));
  }
  if (bytes[0] == 0x20 && bytes[1] == 0x02) return IsPublicV4(BigEndianWord(bytes + 2));  // 6to4
  const bool zeros = std::all_of(bytes, bytes + 12, [](uint8_t byte) { return byte == 0; });
  const bool unique_local = (bytes[0] & 0xFE) == 0xFC;
  const bool link_local = bytes[0] == 0xFE && (bytes[1] & 0x80) == 0x80;
  return !zeros && !unique_local && !link_local && bytes[0] != 0xFF;
}

bool IsLoopbackAddress(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    return ntohl(v4.sin_addr.s_addr) >> 24 == 127;
  }
  return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
}

// Whether an entry of no_proxy means the host: "*", an address, a name, or a domain with or without
// a dot before it.
bool ExcludesHost(std::string entry, const std::string& host) {
  std::erase_if(entry, [](unsigned char c) { return std::isspace(c) != 0; });
  entry = Lower(std::move(entry));
  if (entry == "*") return true;
  if (entry.starts_with('.')) entry.erase(0, 1);
  if (entry.empty()) return false;
  const std::string bare = host.starts_with('[') ? host.substr(1, host.size() - 2) : host;
  return entry == host || entry == bare || host.ends_with("." + entry);
}

}  // namespace

Result<Url> ParseUrl(const std::string& text) {
  const CurlUrl url(::curl_url());
  const bool printable = std::ranges::all_of(text, [](unsigned char c) { return c > 0x20; });
  if (!printable || ::curl_url_set(url.get(), CURLUPART_URL, text.c_str(), 0) != CURLUE_OK) {
    return BadUrl(text);
  }
  return ReadUrl(url, text);
}

Result<Url> ResolveUrl(const Url& base, const std::string& location) {
  const CurlUrl url(::curl_url());
  const bool set =
      ::curl_url_set(url.get(), CURLUPART_URL, base.text.c_str(), 0) == CURLUE_OK &&
      ::curl_url_set(url.get(), CURLUPART_URL, location.c_str(), CURLU_URLENCODE) == CURLUE_OK;
  if (location.empty() || !set) return BadUrl(location);
  return ReadUrl(url, location);
}

std::string EscapePath(std::string_view text, std::string_view keep) {
  constexpr std::string_view kPlain = "-._~";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (byte < 0x80 && std::isalnum(byte) != 0) || kPlain.find(c) != kPlain.npos ||
                       keep.find(c) != keep.npos;
    out += plain ? std::string(1, c) : fmt::format("%{:02X}", byte);
  }
  return out;
}

bool IsPublicAddress(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    return IsPublicV4(ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr));
  }
  if (address.sa_family == AF_INET6) {
    return IsPublicV6(reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
  }
  return false;
}

HostKind KindOfHost(const std::string& host) {
  if (host == "localhost" || host == "localhost." || host.ends_with(".localhost")) {
    return HostKind::kLoopback;
  }
  sockaddr_in v4{};
  sockaddr_in6 v6{};
  const sockaddr* address = nullptr;
  if (::inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    address = reinterpret_cast<const sockaddr*>(&v4);
  } else if (host.starts_with('[') && host.ends_with(']')) {
    const std::string inside = host.substr(1, host.size() - 2);
    // Zones ("%eth0") are of link-local addresses.
    if (::inet_pton(AF_INET6, inside.substr(0, inside.find('%')).c_str(), &v6.sin6_addr) != 1) {
      return HostKind::kPrivate;
    }
    v6.sin6_family = AF_INET6;
    address = reinterpret_cast<const sockaddr*>(&v6);
  } else {
    return HostKind::kName;
  }
  if (IsLoopbackAddress(*address)) return HostKind::kLoopback;
  return IsPublicAddress(*address) ? HostKind::kPublic : HostKind::kPrivate;
}

Status CheckPlainHttp(const Url& url, bool insecure, bool has_token) {
  if (url.encrypted() || KindOfHost(url.host) == HostKind::kLoopback) return OkStatus();
  if (!insecure) {
    return MakeError(ErrorKind::kUsage, "pull.insecure",
                     "'{}' is not encrypted; use https, or give --insecure",
                     ShownName(url.Origin()));
  }
  if (!has_token) return OkStatus();
  return MakeError(ErrorKind::kUsage, "pull.insecure",
                   "a token would go to '{}' without encryption; unset HF_TOKEN and "
                   "HF_TOKEN_PATH, set HF_HUB_DISABLE_IMPLICIT_TOKEN=1, or use https",
                   ShownName(url.Origin()));
}

std::string ProxyOf(const Url& url, const char* (*getenv)(const char*)) {
  const auto value = [getenv](std::string name) -> std::string {
    for (const bool upper : {false, true}) {
      if (upper) {
        std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::toupper(c); });
      }
      const char* found = getenv(name.c_str());
      if (found != nullptr && *found != '\0') return found;
    }
    return {};
  };
  const std::string excluded = value("no_proxy") + ",";
  for (size_t begin = 0; begin < excluded.size();) {
    const size_t end = excluded.find(',', begin);
    if (ExcludesHost(excluded.substr(begin, end - begin), url.host)) return {};
    begin = end + 1;
  }
  std::string proxy = value(url.scheme + "_proxy");
  return proxy.empty() ? value("all_proxy") : proxy;
}

}  // namespace rullama::downloads
