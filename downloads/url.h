// Addresses of the web, and which of them a download may use. The parser is libcurl's, so the
// address that is checked is the one connected to. Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/status.h"

struct sockaddr;

namespace rullama::downloads {

struct Url {
  std::string text;    // normalised, without fragment
  std::string scheme;  // "http" or "https"
  std::string host;    // lower case; an IPv6 address in brackets
  std::string port;    // always given

  [[nodiscard]] std::string Origin() const { return scheme + "://" + host + ":" + port; }
  [[nodiscard]] bool encrypted() const { return scheme == "https"; }
  // Without query, which may be a signature.
  [[nodiscard]] std::string Shown() const { return text.substr(0, text.find('?')); }
};

// Error pull.redirect (kIo) unless it is an http or https address without user and password.
Result<Url> ParseUrl(const std::string& text);
// `location` as it is meant on the page `base`.
Result<Url> ResolveUrl(const Url& base, const std::string& location);

// A part of a path with everything escaped that is not a letter, a digit or one of "-._~"; `keep`
// has more characters that stay.
std::string EscapePath(std::string_view text, std::string_view keep = "");

// Whether the address leads to the open network: neither this machine, nor private, link-local,
// shared, multicast or reserved.
bool IsPublicAddress(const sockaddr& address);

enum class HostKind : uint8_t { kLoopback, kPrivate, kPublic, kName };
// What can be said of a host without asking anybody: of addresses and of "localhost".
HostKind KindOfHost(const std::string& host);

// Error pull.insecure (kUsage) for plain http to another machine, unless `insecure`, and even then
// if a token would go along.
Status CheckPlainHttp(const Url& url, bool insecure, bool has_token);

// The proxy for an address, from the variables that `getenv` knows: http_proxy, https_proxy,
// all_proxy and no_proxy, in both cases. Empty: none.
std::string ProxyOf(const Url& url, const char* (*getenv)(const char*));

}  // namespace rullama::downloads
