#include "server/http/head_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <boost/beast/core/string.hpp>
#include <iterator>

#include "core/base/printable.h"
#include "server/http/equal_ignoring_case.h"
#include "server/http/query.h"

namespace rullama::server {
namespace {

namespace http = boost::beast::http;

std::string_view ViewOf(boost::beast::string_view text) { return {text.data(), text.size()}; }

// "host", "host:port", "[v6]" or "[v6]:port" without the port and the brackets; empty for anything
// else.
std::string_view HostName(std::string_view host) {
  const bool bracket = host.starts_with('[');
  const size_t end = std::min(host.find(bracket ? ']' : ':'), host.size());
  const std::string_view name = host.substr(bracket ? 1 : 0, end - (bracket ? 1 : 0));
  std::string_view port = host.substr(end);
  if (bracket && port.empty()) return {};
  if (bracket) port.remove_prefix(1);
  const bool is_port =
      port.empty() || (port.front() == ':' && std::all_of(port.begin() + 1, port.end(), [](char c) {
                         return c >= '0' && c <= '9';
                       }));
  return is_port ? name : std::string_view();
}

bool HostAllowed(std::string_view host, const std::vector<std::string>& allowed) {
  const std::string name(HostName(host));
  boost::system::error_code failure;
  boost::asio::ip::make_address(name, failure);
  if (!failure || EqualIgnoringCase(name, "localhost")) return true;
  return std::any_of(allowed.begin(), allowed.end(),
                     [&](const std::string& one) { return EqualIgnoringCase(one, name); });
}

ApiResult<void> CheckHost(const RequestHead& head, const std::vector<std::string>& allowed) {
  const auto count = head.count(http::field::host);
  if (count > 1 || (count == 0 && head.version() >= 11)) {
    return tl::unexpected(MakeApiError(
        "invalid_value",
        fmt::format("the request has {} Host fields, expected one; name the server once", count)));
  }
  if (count == 0) return {};
  const std::string_view host = ViewOf(head[http::field::host]);
  if (HostAllowed(host, allowed)) return {};
  return tl::unexpected(MakeApiError(
      "host_forbidden",
      fmt::format("the request is for host '{}', expected an IP address, localhost or a name that "
                  "was allowed; start the server with --allowed-host NAME",
                  ShownName(host.substr(0, 64)))));
}

// Behind a proxy the page may have come by https.
bool IsOwnOrigin(const RequestHead& head) {
  const std::string_view origin = ViewOf(head[http::field::origin]);
  const std::string host(ViewOf(head[http::field::host]));
  return EqualIgnoringCase(origin, "http://" + host) ||
         EqualIgnoringCase(origin, "https://" + host);
}

ApiResult<void> CheckOrigin(const RequestHead& head, const std::vector<std::string>& allowed) {
  const auto count = head.count(http::field::origin);
  if (count == 0 || (count == 1 && IsOwnOrigin(head))) return {};
  const std::string_view origin = ViewOf(head[http::field::origin]);
  const bool listed = std::any_of(allowed.begin(), allowed.end(), [&](const std::string& one) {
    return EqualIgnoringCase(one, origin);
  });
  if (count == 1 && listed) return {};
  return tl::unexpected(MakeApiError(
      "origin_forbidden",
      fmt::format("the request comes from a page of '{}', expected one of this server; allow it "
                  "with server.allowed_origins",
                  ShownName(origin.substr(0, 64)))));
}

ApiResult<void> CheckCodings(const RequestHead& head) {
  const auto encodings = head.equal_range(http::field::content_encoding);
  for (auto field = encodings.first; field != encodings.second; ++field) {
    const std::string_view coding = ViewOf(field->value());
    if (coding.empty() || EqualIgnoringCase(coding, "identity")) continue;
    return tl::unexpected(MakeApiError(
        "unsupported_media_type",
        fmt::format("the body has Content-Encoding '{}', expected none; send it uncompressed",
                    ShownName(coding.substr(0, 64)))));
  }
  const std::string_view transfer = ViewOf(head[http::field::transfer_encoding]);
  const auto transfers = head.count(http::field::transfer_encoding);
  // A proxy that speaks HTTP/1.0 may have taken the length of the body for another (RFC 9112, 6.1).
  if (transfers > 0 && head.version() < 11) {
    return tl::unexpected(MakeApiError(
        "invalid_value",
        "the request is of HTTP/1.0 and has Transfer-Encoding, expected HTTP/1.1; send the body "
        "with Content-Length"));
  }
  if (transfers > 1 || (transfers == 1 && !EqualIgnoringCase(transfer, "chunked"))) {
    return tl::unexpected(
        MakeApiError("invalid_value",
                     "Transfer-Encoding is not 'chunked'; send the body in chunks or with "
                     "Content-Length"));
  }
  return {};
}

}  // namespace

ApiResult<std::string> PathOf(std::string_view target, size_t limit) {
  if (target.size() > limit) {
    return tl::unexpected(MakeApiError(
        "uri_too_long",
        fmt::format("the path has {} bytes, expected at most {}", target.size(), limit)));
  }
  // The absolute form names the server first, whose name the Host field has too.
  if (constexpr std::string_view kScheme = "http://"; target.starts_with(kScheme)) {
    target.remove_prefix(std::min(target.find('/', kScheme.size()), target.size()));
  }
  target = target.substr(0, target.find('?'));
  auto plain = WithoutEscapes(target);
  if (!plain) {
    return tl::unexpected(
        MakeApiError("invalid_value", "the path has a '%' without two hexadecimal digits"));
  }
  std::string path = *std::move(plain);
  if (std::ranges::any_of(path, [](char c) {
        return static_cast<unsigned char>(c) < 0x20 || c == 0x7F || c == '\\';
      })) {
    return tl::unexpected(
        MakeApiError("invalid_value", "the path has a control character or a backslash"));
  }
  if (path.find("..") != std::string::npos) {
    return tl::unexpected(MakeApiError("invalid_value", "the path has '..'"));
  }
  if (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

ApiResult<void> CheckHead(const RequestHead& head, const HttpLimits& limits,
                          const AllowedNames& allowed) {
  const auto fields = static_cast<size_t>(std::distance(head.begin(), head.end()));
  if (fields > limits.header_fields) {
    return tl::unexpected(
        MakeApiError("header_too_large", fmt::format("the request has {} fields, expected at most "
                                                     "{}",
                                                     fields, limits.header_fields)));
  }
  if (auto host = CheckHost(head, allowed.hosts); !host) return host;
  if (auto origin = CheckOrigin(head, allowed.origins); !origin) return origin;
  return CheckCodings(head);
}

bool IsForeignPage(const RequestHead& head) {
  return head.count(http::field::origin) > 0 && !IsOwnOrigin(head);
}

}  // namespace rullama::server
