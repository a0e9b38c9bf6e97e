#include "server/http/connection.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/status.hpp>
#include <cerrno>
#include <ctime>
#include <future>
#include <new>
#include <random>
#include <utility>

#include "server/http/head_check.h"
#include "server/http/query.h"

namespace rullama::server {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

constexpr int kNoContent = 204;
constexpr int kNotModified = 304;
constexpr size_t kReadBytes = 4096;
constexpr size_t kDroppedBytes = 16U << 20;  // read and dropped after an error, at most
constexpr std::chrono::milliseconds kDropTime{2000};
constexpr std::chrono::milliseconds kCloseInterval{100};  // between two looks for a close

bool IsRequestId(std::string_view id) {
  return !id.empty() && id.size() <= 64 && std::all_of(id.begin(), id.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
  });
}

std::string MakeRequestId() {
  thread_local std::mt19937_64 random{std::random_device{}()};
  return fmt::format("req_{:016x}", random());
}

HttpAnswer AnswerOf(Dialect dialect, const ApiError& error, const std::string& request_id) {
  HttpAnswer answer{.status = error.status,
                    .content_type = "application/json",
                    .body = ErrorBody(dialect, error, request_id),
                    .fields = error.fields};
  NameRequest(dialect, request_id, answer.fields);
  return answer;
}

// The error that a failed read is answered with; nothing if there is nobody to answer.
std::optional<ApiError> ErrorOfRead(const boost::system::error_code& failure,
                                    const HttpLimits& limits) {
  if (failure == http::error::header_limit || failure == http::error::buffer_overflow) {
    return MakeApiError(
        "header_too_large",
        fmt::format("the head of the request is longer than {} bytes", limits.header_bytes));
  }
  if (failure == http::error::body_limit) {
    return MakeApiError("body_too_large", fmt::format("the body is longer than {} bytes; send less",
                                                      limits.body_bytes));
  }
  if (failure == http::error::bad_version) {
    return MakeApiError("version_not_supported", "the request is not HTTP/1.1 or HTTP/1.0");
  }
  const bool ours = failure.category() == make_error_code(http::error::bad_method).category();
  if (!ours || failure == http::error::end_of_stream || failure == http::error::partial_message) {
    return std::nullopt;
  }
  return MakeApiError("bad_request", fmt::format("the request is not HTTP: {}", failure.message()));
}

}  // namespace

std::string HeadText(const HttpAnswer& answer, unsigned version, const std::string& request_id,
                     bool keep_open, std::optional<size_t> length) {
  const auto reason = http::obsolete_reason(static_cast<http::status>(answer.status));
  std::string head = fmt::format(
      "HTTP/1.1 {} {}\r\nServer: rullama\r\nDate: {:%a, %d %b %Y %H:%M:%S} GMT\r\n"
      "X-Content-Type-Options: nosniff\r\nX-Request-Id: {}\r\n",
      answer.status, std::string_view(reason.data(), reason.size()),
      fmt::gmtime(std::time(nullptr)), request_id);
  const bool has_body = answer.status != kNoContent && answer.status != kNotModified;
  if (has_body) head += fmt::format("Content-Type: {}\r\n", answer.content_type);
  for (const HeaderField& field : answer.fields) {
    head += fmt::format("{}: {}\r\n", field.name, field.value);
  }
  if (!has_body) {
    // Such an answer has no body and says nothing about one.
  } else if (length) {
    head += fmt::format("Content-Length: {}\r\n", *length);
  } else if (version >= 11) {
    head += "Transfer-Encoding: chunked\r\n";
  }
  if (!keep_open) {
    head += "Connection: close\r\n";
  } else if (version < 11) {
    head += "Connection: keep-alive\r\n";
  }
  return head + "\r\n";
}

// The exchange of the request that the connection has read last.
class Connection::HandledRequest : public Exchange {
 public:
  HandledRequest(std::shared_ptr<Connection> connection, HttpRequest request, unsigned version,
                 bool keep_open)
      : connection_(std::move(connection)),
        request_(std::move(request)),
        version_(version),
        keep_open_(keep_open) {}
  HandledRequest(const HandledRequest&) = delete;
  HandledRequest& operator=(const HandledRequest&) = delete;
  ~HandledRequest() override {
    connection_->OnLeave({});
    const bool keep_open = keep_open_ && ended_ && !failed_;
    try {
      asio::post(connection_->socket_.get_executor(),
                 [connection = connection_, keep_open] { connection->FinishRequest(keep_open); });
    } catch (const std::bad_alloc&) {
      connection_->Abandon();
    }
  }

  // Runs the handler. An answer that memory did not suffice for is an error, if it has not begun.
  void Handle() {
    try {
      connection_->context_->handler(*this);
    } catch (const std::bad_alloc&) {
      if (!begun_) Send(AnswerOf(DialectOf(request_.path), OutOfMemory(), request_.request_id));
    }
  }

  [[nodiscard]] const HttpRequest& request() const override { return request_; }

  bool Send(HttpAnswer answer) override {
    AllowPage(answer);
    std::string bytes =
        HeadText(answer, version_, request_.request_id, keep_open_, answer.body.size());
    if (request_.method != "HEAD") bytes += answer.body;
    ended_ = true;
    return Put(std::move(bytes));
  }
  bool Begin(HttpAnswer head) override {
    AllowPage(head);
    if (version_ < 11) keep_open_ = false;  // the end of the connection ends the answer
    return Put(HeadText(head, version_, request_.request_id, keep_open_, std::nullopt));
  }
  bool Write(std::string_view bytes) override {
    if (bytes.empty()) return !failed_;
    if (version_ < 11) return Put(std::string(bytes));
    return Put(fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes));
  }
  bool End() override {
    ended_ = true;
    return version_ < 11 ? !failed_ : Put("0\r\n\r\n");
  }
  void OnLeave(std::function<void()> left) override { connection_->OnLeave(std::move(left)); }

 private:
  // Lets a page of an allowed origin read the answer.
  void AllowPage(HttpAnswer& answer) const {
    if (request_.foreign_origin.empty()) return;
    answer.fields.push_back({"Access-Control-Allow-Origin", request_.foreign_origin});
    answer.fields.push_back({"Vary", "Origin"});
  }
  bool Put(std::string bytes) {
    begun_ = true;
    if (failed_) return false;
    failed_ = true;  // also if writing throws
    failed_ = !connection_->WriteAndWait(std::move(bytes));
    return !failed_;
  }

  std::shared_ptr<Connection> connection_;
  HttpRequest request_;
  unsigned version_;
  bool keep_open_;
  bool begun_ = false;  // some of the answer may be out
  bool ended_ = false;
  bool failed_ = false;
};

Connection::Connection(asio::ip::tcp::socket socket,
                       std::shared_ptr<const ConnectionContext> context)
    : socket_(std::move(socket)),
      context_(std::move(context)),
      read_deadline_(socket_.get_executor()),
      watch_deadline_(socket_.get_executor()),
      write_deadline_(socket_.get_executor()),
      buffer_(2 * size_t{context_->limits.header_bytes} + kReadBytes) {}

void Connection::StartTimer(std::chrono::milliseconds limit) {
  timed_out_ = false;
  read_deadline_.Start(limit, [self = shared_from_this()] {
    self->timed_out_ = true;
    ErrorCode ignored;
    self->socket_.cancel(ignored);
  });
}

void Connection::WaitForRequest() {
  if (closing_) return Close();
  answered_ = false;
  path_.clear();
  parser_.emplace();
  parser_->header_limit(context_->limits.header_bytes);
  parser_->body_limit(context_->limits.body_bytes);
  on_chunk_ = [limit = context_->limits.chunk_extension_bytes](
                  uint64_t /*size*/, boost::beast::string_view extensions, ErrorCode& failure) {
    if (extensions.size() > limit) failure = http::error::bad_chunk_extension;
  };
  parser_->on_chunk_header(on_chunk_);
  skips_body_ = false;
  if (buffer_.size() > 0) return ReadHead();
  idle_ = true;
  idle_since_ = Clock::now();
  StartTimer(context_->limits.idle_timeout);
  socket_.async_read_some(buffer_.prepare(kReadBytes),
                          [self = shared_from_this()](const ErrorCode& failure, size_t bytes) {
                            self->idle_ = false;
                            self->read_deadline_.Stop();
                            if (failure) return self->Close();
                            self->buffer_.commit(bytes);
                            self->ReadHead();
                          });
}

void Connection::ReadHead() {
  StartTimer(context_->limits.header_timeout);
  http::async_read_header(socket_, buffer_, *parser_,
                          [self = shared_from_this()](const ErrorCode& failure, size_t) {
                            self->read_deadline_.Stop();
                            if (failure) return self->AnswerReadError(failure);
                            self->TakeHead();
                          });
}

void Connection::TakeHead() {
  const auto& head = parser_->get();
  const auto target = head.target();
  auto path = PathOf({target.data(), target.size()}, context_->limits.target_bytes);
  if (!path) return Refuse(path.error());
  path_ = *std::move(path);
  const auto checked = CheckHead(head, context_->limits, context_->allowed);
  if (!checked) return Refuse(checked.error());
  if (parser_->is_done()) return HandleRequest();
  skips_body_ = context_->wants_body && !context_->wants_body(TakeRequest());
  if (skips_body_) return HandleRequest();
  body_share_ = std::make_shared<BodyMemory::Share>(context_->body_memory);
  if (!boost::beast::iequals(head[http::field::expect], "100-continue")) return ReadBody();
  Continue();
}

void Connection::Continue() {
  out_ = "HTTP/1.1 100 Continue\r\n\r\n";
  asio::async_write(socket_, asio::buffer(out_),
                    [self = shared_from_this()](const ErrorCode& failure, size_t) {
                      if (failure) return self->Close();
                      self->ReadBody();
                    });
}

void Connection::ReadBody() {
  parser_->eager(true);
  StartTimer(context_->limits.body_timeout);
  ReadMoreBody();
}

void Connection::ReadMoreBody() {
  if (!body_share_->Grow(parser_->get().body().size())) {
    read_deadline_.Stop();
    return Refuse(MakeApiError(
        "too_many_bodies",
        fmt::format("the bodies of the requests that are being read and answered have {} bytes, "
                    "the limit (server.max_body_memory_mib); try again later",
                    context_->body_memory->limit())));
  }
  if (parser_->is_done()) {
    read_deadline_.Stop();
    return HandleRequest();
  }
  http::async_read_some(socket_, buffer_, *parser_,
                        [self = shared_from_this()](const ErrorCode& failure, size_t) {
                          if (!failure) return self->ReadMoreBody();
                          self->read_deadline_.Stop();
                          self->AnswerReadError(failure);
                        });
}

void Connection::AnswerReadError(const ErrorCode& failure) {
  if (timed_out_) {
    return Refuse(MakeApiError("request_timeout", "the request did not arrive in time"));
  }
  const auto error = ErrorOfRead(failure, context_->limits);
  if (!error) return Close();
  Refuse(*error);
}

void Connection::Refuse(const ApiError& error) {
  const std::string id = MakeRequestId();
  const HttpAnswer answer = AnswerOf(DialectOf(path_), error, id);
  out_ = HeadText(answer, 11, id, false, answer.body.size()) + answer.body;
  StartTimer(context_->limits.write_timeout);
  asio::async_write(socket_, asio::buffer(out_),
                    [self = shared_from_this()](const ErrorCode& failure, size_t) {
                      self->read_deadline_.Stop();
                      if (failure) return self->Close();
                      self->CloseGently();
                    });
}

void Connection::CloseGently() {
  body_share_.reset();
  parser_.reset();  // with the body
  ErrorCode ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  StartTimer(kDropTime);
  DropInput();
}

void Connection::DropInput() {
  buffer_.clear();
  socket_.async_read_some(buffer_.prepare(kReadBytes),
                          [self = shared_from_this()](const ErrorCode& failure, size_t bytes) {
                            self->dropped_ += bytes;
                            if (failure || self->dropped_ > kDroppedBytes) {
                              self->read_deadline_.Stop();
                              return self->Close();
                            }
                            self->DropInput();
                          });
}

HttpRequest Connection::TakeRequest() {
  auto& message = parser_->get();
  const auto method = message.method_string();
  const auto target = message.target();
  const auto field = [&message](std::string_view name) {
    const auto value = message[boost::beast::string_view(name.data(), name.size())];
    return std::string(value.data(), value.size());
  };
  HttpRequest request{.method = {method.data(), method.size()},
                      .path = path_,
                      .query = std::string(QueryOf({target.data(), target.size()})),
                      .body = std::move(message.body()),
                      .request_id = field("X-Request-Id"),
                      .authorization = field("Authorization"),
                      .api_key = field("X-Api-Key"),
                      .anthropic_version = field("Anthropic-Version"),
                      .tools_token = field("X-Rullama-Tools"),
                      .user_agent = field("User-Agent"),
                      .accept = field("Accept"),
                      .content_type = field("Content-Type"),
                      .if_none_match = field("If-None-Match"),
                      .foreign_origin = IsForeignPage(message) ? field("Origin") : "",
                      .asked_method = field("Access-Control-Request-Method"),
                      .asked_fields = field("Access-Control-Request-Headers")};
  if (!IsRequestId(request.request_id)) request.request_id = MakeRequestId();
  return request;
}

void Connection::HandleRequest() {
  const bool keep_open = parser_->get().keep_alive() && !skips_body_;
  const unsigned version = parser_->get().version();
  // The exchange is made on the handler's thread, whose end lets the connection continue.
  const auto started =
      context_->start_handler([self = shared_from_this(), request = TakeRequest(),
                               share = std::move(body_share_), keep_open, version]() mutable {
        HandledRequest(self, std::move(request), version, keep_open).Handle();
      });
  if (!started) return Refuse(started.error());
  if (!skips_body_) Watch();
}

void Connection::Watch() {
  if (buffer_.size() >= context_->limits.header_bytes) return WatchForClose();
  watching_ = true;
  socket_.async_read_some(buffer_.prepare(kReadBytes),
                          [self = shared_from_this()](const ErrorCode& failure, size_t bytes) {
                            self->watching_ = false;
                            self->buffer_.commit(bytes);
                            const bool cancelled = failure == asio::error::operation_aborted;
                            if (failure && !cancelled) {
                              self->NoticeLeave();
                              if (self->answered_) self->Close();
                              return;
                            }
                            if (self->answered_) return self->WaitForRequest();
                            if (!cancelled) self->Watch();
                          });
}

// The system tells of a close that follows unread bytes only if it is asked.
void Connection::WatchForClose() {
  if (!socket_.is_open() || answered_) return;
  pollfd state{.fd = socket_.native_handle(), .events = POLLRDHUP, .revents = 0};
  if (::poll(&state, 1, 0) > 0) return NoticeLeave();
  watch_deadline_.Start(kCloseInterval, [self = shared_from_this()] { self->WatchForClose(); });
}

void Connection::NoticeLeave() {
  if (!socket_.is_open()) return;  // this side has closed: the client does not read
  closing_ = true;
  const std::lock_guard lock(mutex_);
  SetLeft();
}

void Connection::SetLeft() {
  if (std::exchange(left_, true)) return;
  if (on_leave_) on_leave_();
}

void Connection::OnLeave(std::function<void()> left) {
  const std::lock_guard lock(mutex_);
  on_leave_ = std::move(left);
  if (left_ && on_leave_) on_leave_();
}

void Connection::FinishRequest(bool keep_open) {
  answered_ = true;
  watch_deadline_.Stop();
  if (!keep_open) closing_ = true;
  if (skips_body_ && socket_.is_open()) return CloseGently();
  if (!watching_) return WaitForRequest();
  ErrorCode ignored;
  socket_.cancel(ignored);
}

void Connection::Abandon() {
  const std::lock_guard lock(mutex_);
  if (socket_.is_open()) ::shutdown(socket_.native_handle(), SHUT_RDWR);
}

void Connection::CloseWhenIdle() {
  closing_ = true;
  if (idle_) Close();
}

void Connection::Leave() {
  NoticeLeave();
  Close();
}

void Connection::Close() {
  ErrorCode ignored;
  read_deadline_.Stop();
  watch_deadline_.Stop();
  write_deadline_.Stop();
  socket_.shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
  const std::lock_guard lock(mutex_);  // of SendNow(), whose descriptor must not become another's
  socket_.close(ignored);
}

std::optional<size_t> Connection::SendNow(std::string_view bytes) {
  const std::lock_guard lock(mutex_);
  if (left_ || !socket_.is_open()) return std::nullopt;
  const ssize_t sent =
      ::send(socket_.native_handle(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent >= 0) return static_cast<size_t>(sent);
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return 0;
  if (errno != ENOBUFS && errno != ENOMEM) SetLeft();
  return std::nullopt;
}

bool Connection::WriteAndWait(std::string bytes) {
  // Nearly always all of it fits into the buffer of the socket. Then no other thread is woken.
  const auto sent = SendNow(bytes);
  if (!sent) return false;
  if (*sent == bytes.size()) return true;
  bytes.erase(0, *sent);
  return WriteRest(std::move(bytes));
}

bool Connection::WriteRest(std::string bytes) {
  auto written = std::make_shared<std::promise<bool>>();
  auto result = written->get_future();
  asio::post(socket_.get_executor(), [self = shared_from_this(), bytes = std::move(bytes),
                                      written]() mutable {
    {
      const std::lock_guard lock(self->mutex_);
      if (self->left_ || !self->socket_.is_open()) return written->set_value(false);
    }
    self->out_ = std::move(bytes);
    self->write_deadline_.Start(self->context_->limits.write_timeout, [self] { self->Close(); });
    asio::async_write(self->socket_, asio::buffer(self->out_),
                      [self, written](const ErrorCode& failure, size_t) {
                        self->write_deadline_.Stop();
                        if (failure) self->NoticeLeave();
                        written->set_value(!failure);
                      });
  });
  return result.get();
}

}  // namespace rullama::server
