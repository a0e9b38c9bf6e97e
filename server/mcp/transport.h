// The way of messages to an MCP server and back.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "core/base/clock.h"
#include "core/base/status.h"
#include "server/mcp/message.h"

namespace rullama::server::mcp {

// The limits of a wait: a time, and a condition that ends it.
struct Wait {
  Clock::time_point until;
  std::function<bool()> ended = {};  // whether nobody wants it any more; empty: never

  // Error mcp.timeout or mcp.cancelled (both kRuntime).
  [[nodiscard]] Status Check() const {
    if (ended && ended()) {
      return MakeError(ErrorKind::kRuntime, "mcp.cancelled", "the call was ended");
    }
    if (Clock::now() < until) return OkStatus();
    return MakeError(ErrorKind::kRuntime, "mcp.timeout", "the server did not answer in time");
  }
};
// The time between two looks at a Wait.
inline constexpr std::chrono::milliseconds kLookAtWait{50};

// Requests and notifications of the server. Returns the answer to a request, as text. Called from
// any thread, must not call the transport.
using OnMessage = std::function<std::string(const Message& message)>;
using Log = std::function<void(std::string_view line)>;

// Errors of all functions, all kRuntime: mcp.protocol, mcp.too_large, mcp.closed (the server is
// gone; nothing works from then on), mcp.timeout, mcp.cancelled, mcp.http.
//
// Thread safety: Ask() and Tell() from any thread.
class Transport {
 public:
  virtual ~Transport() = default;

  // Sends the request with this id and waits for its answer.
  virtual Result<Message> Ask(int64_t id, const std::string& text, const Wait& wait) = 0;
  // Sends a notification.
  virtual Status Tell(const std::string& text, const Wait& wait) = 0;
  // The version of the protocol that both sides have agreed on; before any request but the first.
  virtual void SetVersion(const std::string& version) = 0;
  // Whether the server can say at any time that its list of tools has changed.
  [[nodiscard]] virtual bool HearsOfChanges() const = 0;
  // Whether nothing works any more.
  [[nodiscard]] virtual bool closed() const = 0;
};

}  // namespace rullama::server::mcp
