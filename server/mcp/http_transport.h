// Messages over MCP's streamable HTTP: each is a request of its own, whose answer is JSON or a
// stream of events.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "server/mcp/server_list.h"
#include "server/mcp/transport.h"

namespace rullama::server::mcp {

struct HttpRequestToServer {
  std::string method;  // "POST"
  std::string url;
  std::vector<HeaderField> headers;
  std::string body;
  Wait wait;
};
struct HttpAnswerOfServer {
  long status = 0;
  std::map<std::string, std::string> fields = {};  // by names in lower case
  std::string said = {};  // the start of the body of an answer that is not success
};
// Sends a request over HTTP, from any thread. `on_head` is told the head of an answer of success,
// and `on_body` its bytes; either may return false to end the request, which is not an error. No
// redirect is followed. Errors, all kRuntime: mcp.http, mcp.timeout, mcp.cancelled.
using HttpSender = std::function<Result<HttpAnswerOfServer>(
    const HttpRequestToServer& request,
    const std::function<bool(const HttpAnswerOfServer&)>& on_head,
    const std::function<bool(std::string_view)>& on_body)>;

// No stream is kept open for what the server says without being asked, so that a server of many
// clients has no connection of an idle one: changes of its list of tools are not heard of.
class HttpTransport final : public Transport {
 public:
  HttpTransport(ToolServerEntry entry, HttpSender send, OnMessage on_message);
  HttpTransport(const HttpTransport&) = delete;
  HttpTransport& operator=(const HttpTransport&) = delete;
  // Tells the server that its session is over.
  ~HttpTransport() override;

  Result<Message> Ask(int64_t id, const std::string& text, const Wait& wait) override;
  Status Tell(const std::string& text, const Wait& wait) override;
  void SetVersion(const std::string& version) override;
  [[nodiscard]] bool HearsOfChanges() const override { return false; }
  [[nodiscard]] bool closed() const override;

 private:
  class Answer;
  [[nodiscard]] HttpRequestToServer RequestOf(const std::string& method, const std::string& body,
                                              const Wait& wait) const;
  // An error for an answer that is not success.
  Status CheckAnswer(const HttpAnswerOfServer& answer);
  void KeepSession(const HttpAnswerOfServer& answer);

  const ToolServerEntry entry_;
  const HttpSender send_;
  const OnMessage on_message_;
  mutable std::mutex mutex_;  // guards what follows
  std::string version_;
  std::string session_;  // as the server names it; empty: it has none
  bool closed_ = false;
};

}  // namespace rullama::server::mcp
