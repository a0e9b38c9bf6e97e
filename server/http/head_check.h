// Checks of the head of a request, before its body is read.
#pragma once

#include <boost/beast/http/fields.hpp>
#include <boost/beast/http/message.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "server/api_error.h"
#include "server/limits.h"

namespace rullama::server {

using RequestHead = boost::beast::http::request_header<boost::beast::http::fields>;

// The path of a request target, decoded once, without its query and without a slash at its end.
// Errors: 400 for invalid escapes, control characters, "..", "\"; 414 for more than `limit` bytes.
ApiResult<std::string> PathOf(std::string_view target, size_t limit);

// Who may ask, besides clients that name an IP address or localhost and pages of this server.
struct AllowedNames {
  std::vector<std::string> hosts = {};    // "models.example"
  std::vector<std::string> origins = {};  // "https://chat.example"
};

// Errors: 400 (Host, Transfer-Encoding), 403 (Host, Origin), 415 (media type, content coding), 431
// (number of fields).
ApiResult<void> CheckHead(const RequestHead& head, const HttpLimits& limits,
                          const AllowedNames& allowed);

// Whether a request that has passed CheckHead() comes from a page of another server.
bool IsForeignPage(const RequestHead& head);

}  // namespace rullama::server
