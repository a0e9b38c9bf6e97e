#include "server/mcp/http_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "core/base/printable.h"
#include "server/mcp/event_reader.h"

namespace rullama::server::mcp {
namespace {

constexpr std::chrono::milliseconds kTimeToEndSession{1'000};
constexpr size_t kMaxSessionBytes = 1'024;
constexpr size_t kShownAnswerBytes = 300;
constexpr std::string_view kSession = "mcp-session-id";

std::string FieldOf(const HttpAnswerOfServer& answer, std::string_view name) {
  const auto field = answer.fields.find(std::string(name));
  return field == answer.fields.end() ? std::string() : field->second;
}

bool IsVisible(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c > ' ' && c <= '~'; });
}

}  // namespace

// Looks for the answer to a request in what comes.
class HttpTransport::Answer {
 public:
  Answer(int64_t id, const OnMessage& on_message, std::function<void(const std::string&)> reply)
      : id_(id), on_message_(on_message), reply_(std::move(reply)) {}

  void Begin(const HttpAnswerOfServer& head) {
    streams_ = FieldOf(head, "content-type").starts_with("text/event-stream");
  }
  // False once the answer is there, or after an error.
  bool Take(std::string_view bytes) {
    if (!streams_) {
      whole_ += bytes;
      if (whole_.size() <= kMaxMessageBytes) return true;
      error_ = Error{ErrorKind::kRuntime, "mcp.too_large",
                     fmt::format("the answer has more than {} bytes", kMaxMessageBytes)};
      return false;
    }
    const auto events = events_.Take(bytes);
    if (!events) {
      error_ = events.error();
      return false;
    }
    return std::ranges::all_of(*events, [this](const std::string& event) { return Read(event); });
  }
  // The message that was found, after all bytes have been taken.
  Result<Message> End() && {
    if (!streams_ && !error_ && !whole_.empty()) Read(whole_);
    if (error_) return tl::unexpected(*error_);
    if (found_) return *std::move(found_);
    return MakeError(ErrorKind::kRuntime, "mcp.protocol",
                     "the server ended its answer without the result");
  }

 private:
  bool Read(std::string_view text) {
    auto messages = ParseMessages(text);
    if (!messages) {
      error_ = std::move(messages).error();
      return false;
    }
    for (Message& message : *messages) {
      if (message.kind != Message::Kind::kAnswer) {
        const std::string answer = on_message_(message);
        if (!answer.empty()) reply_(answer);
      } else if (message.id == id_ || (message.id.is_null() && message.error)) {
        found_ = std::move(message);
      }
    }
    return !found_;
  }

  const int64_t id_;
  const OnMessage& on_message_;
  std::function<void(const std::string&)> reply_;
  bool streams_ = false;
  std::string whole_;
  EventReader events_{kMaxMessageBytes};
  std::optional<Message> found_;
  std::optional<Error> error_;
};

HttpTransport::HttpTransport(ToolServerEntry entry, HttpSender send, OnMessage on_message)
    : entry_(std::move(entry)), send_(std::move(send)), on_message_(std::move(on_message)) {}

HttpTransport::~HttpTransport() {
  if (session_.empty() || closed_) return;
  const auto nothing = [](auto&&) { return false; };
  static_cast<void>(send_(RequestOf("DELETE", "", {.until = Clock::now() + kTimeToEndSession}),
                          nothing, nothing));
}

bool HttpTransport::closed() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

void HttpTransport::SetVersion(const std::string& version) {
  const std::lock_guard lock(mutex_);
  version_ = version;
}

HttpRequestToServer HttpTransport::RequestOf(const std::string& method, const std::string& body,
                                             const Wait& wait) const {
  HttpRequestToServer request{
      .method = method, .url = entry_.url, .headers = entry_.headers, .body = body, .wait = wait};
  request.headers.push_back({"Content-Type", "application/json"});
  request.headers.push_back({"Accept", "application/json, text/event-stream"});
  const std::lock_guard lock(mutex_);
  if (!version_.empty()) request.headers.push_back({"MCP-Protocol-Version", version_});
  if (!session_.empty()) request.headers.push_back({"Mcp-Session-Id", session_});
  return request;
}

Status HttpTransport::CheckAnswer(const HttpAnswerOfServer& answer) {
  if (answer.status >= 200 && answer.status < 300) return OkStatus();
  const std::lock_guard lock(mutex_);
  if (answer.status == 404 && !session_.empty()) {
    closed_ = true;
    return MakeError(ErrorKind::kRuntime, "mcp.closed", "the server has ended the session");
  }
  std::string_view hint;
  if (answer.status == 401 || answer.status == 403) {
    hint = "; give the key that it asks for in headers";
  } else if (answer.status >= 300 && answer.status < 400) {
    hint = "; name the address that it redirects to";
  }
  return MakeError(ErrorKind::kRuntime, "mcp.http", "the server answers with status {}: {}{}",
                   answer.status, Printable(answer.said, kShownAnswerBytes), hint);
}

void HttpTransport::KeepSession(const HttpAnswerOfServer& answer) {
  const std::string session = FieldOf(answer, kSession);
  const std::lock_guard lock(mutex_);
  if (session_.empty() && session.size() <= kMaxSessionBytes && IsVisible(session)) {
    session_ = session;
  }
}

Result<Message> HttpTransport::Ask(int64_t id, const std::string& text, const Wait& wait) {
  Answer answer(id, on_message_,
                [&](const std::string& reply) { static_cast<void>(Tell(reply, wait)); });
  const auto on_head = [&](const HttpAnswerOfServer& head) {
    KeepSession(head);
    answer.Begin(head);
    return true;
  };
  RL_ASSIGN_OR_RETURN(const HttpAnswerOfServer head,
                      send_(RequestOf("POST", text, wait), on_head,
                            [&](std::string_view bytes) { return answer.Take(bytes); }));
  RL_RETURN_IF_ERROR(CheckAnswer(head));
  return std::move(answer).End();
}

Status HttpTransport::Tell(const std::string& text, const Wait& wait) {
  RL_ASSIGN_OR_RETURN(
      const HttpAnswerOfServer head,
      send_(
          RequestOf("POST", text, wait), [](const HttpAnswerOfServer&) { return false; },
          [](std::string_view) { return false; }));
  return CheckAnswer(head);
}

}  // namespace rullama::server::mcp
