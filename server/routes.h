// The table of the endpoints.
#pragma once

#include <string>
#include <string_view>

#include "server/call.h"
#include "server/services.h"

namespace rullama::server {

struct Route {
  std::string_view method;  // a GET answers HEAD too
  std::string_view path;    // "/*" at its end stands for whatever follows
  void (*handle)(const Services& services, Call& call);
  bool needs_key = true;
  bool ApiOptions::*enabled = nullptr;  // false: there is no such endpoint
};

// The result of looking up a path: a route, or the methods that it takes instead, or nothing.
struct FoundRoute {
  const Route* route = nullptr;
  std::string allowed;           // "POST"; empty: no route has this path
  bool not_implemented = false;  // an endpoint of one of the APIs that this server does not have
};
// The endpoints below /v1 are also there without it, since base URLs of OpenAI's libraries often
// lack it; llama-server has them so, too.
FoundRoute FindRoute(std::string_view method, std::string_view path, const ApiOptions& options);

}  // namespace rullama::server
