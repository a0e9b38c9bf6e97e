// One connection of a client: reads its requests one after the other, and writes their answers.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/string_type.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/clock.h"
#include "server/api_error.h"
#include "server/http/body_memory.h"
#include "server/http/deadline.h"
#include "server/http/exchange.h"
#include "server/http/head_check.h"
#include "server/limits.h"

namespace rullama::server {

// State that all connections of a server share. `start_handler` runs a function on its own thread.
// Errors: shutting_down; out_of_memory if the system has no memory for a thread, or no thread.
struct ConnectionContext {
  HttpLimits limits;
  AllowedNames allowed;
  std::function<bool(const HttpRequest&)> wants_body;  // as in HttpServerOptions
  std::shared_ptr<BodyMemory> body_memory;
  std::function<void(Exchange&)> handler;
  std::function<ApiResult<void>(std::function<void()>)> start_handler;
};

// Thread safety: the thread of the sockets runs everything but WriteAndWait() and OnLeave(), which
// belong to the thread of the handler.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(boost::asio::ip::tcp::socket socket, std::shared_ptr<const ConnectionContext> context);

  void Start() { WaitForRequest(); }
  // In place of Start(): answers with the error and closes.
  void RefuseAtOnce(const ApiError& error) {
    refused_ = true;
    Refuse(error);
  }
  [[nodiscard]] bool refused() const { return refused_; }
  // Since when the connection has waited for the first byte of a request; nothing if it does not.
  [[nodiscard]] std::optional<Clock::time_point> idle_since() const {
    return idle_ ? std::optional(idle_since_) : std::nullopt;
  }
  // Closes once the request that is being answered is over.
  void CloseWhenIdle();
  // Closes at once; a request that is being answered is told that its client has left.
  void Leave();

  // Returns when everything is written; false if the client does not read, or if it has left; then
  // the function of OnLeave() has been called. Must not be called while the connection writes
  // something of its own.
  bool WriteAndWait(std::string bytes);
  void OnLeave(std::function<void()> left);

 private:
  class HandledRequest;
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;
  using ErrorCode = boost::system::error_code;

  // Answers with the error and closes.
  void Refuse(const ApiError& error);
  void Close();
  // Ends the connection without memory, on any thread: reads and writes fail from then on.
  void Abandon();
  // Writes what the socket takes at once, and returns its size; nothing if the client has left.
  std::optional<size_t> SendNow(std::string_view bytes);
  // Writes on the thread of the sockets, and waits for it.
  bool WriteRest(std::string bytes);
  void WaitForRequest();
  void ReadHead();
  void TakeHead();
  void Continue();
  void ReadBody();
  void ReadMoreBody();
  // The request that has been read, with as much of its body as there is.
  HttpRequest TakeRequest();
  void HandleRequest();
  void FinishRequest(bool keep_open);
  // Reads on while a request is answered, to notice that the client leaves.
  void Watch();
  // Watches for a close alone, once there is no room for more of what the client sends.
  void WatchForClose();
  // Closes the sending side, then the rest once the client has read.
  void CloseGently();
  void NoticeLeave();
  // Tells the handler that its client has left, once. It may be called on any thread, by a caller
  // that holds `mutex_`.
  void SetLeft();
  void AnswerReadError(const ErrorCode& failure);
  // Lets the client read the answer before the connection is reset: reads and drops what it sends.
  void DropInput();
  void StartTimer(std::chrono::milliseconds limit);

  boost::asio::ip::tcp::socket socket_;
  std::shared_ptr<const ConnectionContext> context_;
  Deadline read_deadline_;
  Deadline watch_deadline_;
  Deadline write_deadline_;
  boost::beast::flat_buffer buffer_;  // bytes that have been read and not been parsed
  std::optional<Parser> parser_;
  // Refuses extensions of chunks that are too long.
  std::function<void(uint64_t, boost::beast::string_view, ErrorCode&)> on_chunk_;
  std::shared_ptr<BodyMemory::Share> body_share_;  // of the request that is being read
  bool skips_body_ = false;                        // which is not wanted
  std::string path_;
  std::string out_;  // being written
  size_t dropped_ = 0;
  bool timed_out_ = false;
  bool refused_ = false;
  bool idle_ = false;  // waits for the first byte of a request
  Clock::time_point idle_since_;
  bool watching_ = false;  // the read of Watch() is outstanding
  bool answered_ = false;  // and the request is over
  bool closing_ = false;

  std::mutex mutex_;  // of what follows, and of closing the socket
  bool left_ = false;
  std::function<void()> on_leave_;
};

// The head and, with Content-Length, the body of an answer as they go over the wire.
std::string HeadText(const HttpAnswer& answer, unsigned version, const std::string& request_id,
                     bool keep_open, std::optional<size_t> length);

}  // namespace rullama::server
