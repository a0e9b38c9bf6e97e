// Listens on an address and speaks HTTP/1.1 with its clients (server specification, section 2):
// limits, timeouts, pipelining, clients that are slow or leave. Knows no route.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/base/status.h"
#include "server/api_error.h"
#include "server/http/exchange.h"
#include "server/http/head_check.h"
#include "server/limits.h"

namespace rullama::server {

struct HttpServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 0;  // 0: any free one
  HttpLimits limits = {};
  AllowedNames allowed = {};
  // Whether the body of a request with this head is to be read. If not, the request is answered
  // without it, and its connection closed. Called on the thread of the sockets; must not block.
  // Empty: all bodies are read.
  std::function<bool(const HttpRequest& head)> wants_body = {};
};

// Answers one request. Called on a thread of its own; what it throws closes the connection.
using HttpHandler = std::function<void(Exchange& exchange)>;

// Thread safety: all member functions from any thread. One thread of its own does all input and
// output of sockets.
class HttpServer {
 public:
  // Listens from then on. Error server.bind (kIo).
  static Result<std::unique_ptr<HttpServer>> Start(const HttpServerOptions& options,
                                                   HttpHandler handler);
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  // Closes all connections and waits for the handlers.
  ~HttpServer();

  [[nodiscard]] uint16_t port() const;
  // Connections that are open.
  [[nodiscard]] size_t connections() const;

  // Accepts no more connections and closes those that wait for a request.
  void StopListening();
  // Blocks until no request is being answered, for at most `limit`. False if some still are.
  bool WaitUntilIdle(std::chrono::milliseconds limit);

 private:
  struct Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace rullama::server
