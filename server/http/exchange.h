// One HTTP request and the way to answer it, as the handler of a route sees them.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/header_field.h"

namespace rullama::server {

struct HttpRequest {
  std::string method;      // "POST"
  std::string path;        // decoded once, without the query and a last slash: "/v1/models"
  std::string query;       // as it came, without the question mark: "limit=20"
  std::string body;        // empty if it is not wanted (HttpServerOptions::wants_body)
  std::string request_id;  // of X-Request-Id, or made
  // The values of these fields; empty if they did not come.
  std::string authorization;
  std::string api_key;  // X-Api-Key
  std::string anthropic_version;
  std::string tools_token;  // X-Rullama-Tools
  std::string user_agent;
  std::string accept;
  std::string content_type;
  std::string if_none_match;
  std::string foreign_origin;  // Origin, if it is that of another server that is allowed
  std::string asked_method;    // Access-Control-Request-Method
  std::string asked_fields;    // Access-Control-Request-Headers
};

// A whole answer. Content-Length, Date and the fields that all answers carry are added when it is
// written.
struct HttpAnswer {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<HeaderField> fields;
};

// Answers exactly once: Send(), or Begin(), any number of Write() and End(). An exchange that is
// destroyed without an end closes the connection.
//
// Thread safety: one thread at a time, the handler's. Every call blocks until the bytes are in the
// socket and returns false if the client has left or does not read.
class Exchange {
 public:
  virtual ~Exchange() = default;

  [[nodiscard]] virtual const HttpRequest& request() const = 0;

  virtual bool Send(HttpAnswer answer) = 0;
  // Starts an answer of unknown length; the body of `head` is not written.
  virtual bool Begin(HttpAnswer head) = 0;
  virtual bool Write(std::string_view bytes) = 0;
  virtual bool End() = 0;

  // Calls `left` when the client closes, resets or half-closes its side; at once if it has already.
  // It is called on the thread of the sockets, or on the handler's within a call that writes to a
  // client that has left. It must not block, call the exchange, or take a lock that its caller
  // holds while it writes. An empty function takes it back and waits for a call that is running.
  virtual void OnLeave(std::function<void()> left) = 0;
};

}  // namespace rullama::server
