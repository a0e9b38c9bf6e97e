#include "server/mcp/process_transport.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <exception>
#include <utility>

#include "core/base/printable.h"

namespace rullama::server::mcp {
namespace {

constexpr size_t kReadBytes = 64 << 10;
// A program may write some lines that are no messages, such as greetings; one that writes more of
// them speaks something else.
constexpr int64_t kMaxBadLines = 100;
constexpr int64_t kMaxErrorLines = 200;
constexpr size_t kShownLineBytes = 300;
constexpr std::chrono::milliseconds kTimeToEndServer{1'000};
constexpr std::chrono::milliseconds kTimeToAnswer{5'000};

// Takes the whole lines out of `text`.
template <typename TakeLine>
void ForEachLine(std::string& text, const TakeLine& take) {
  size_t begin = 0;
  for (size_t end = text.find('\n'); end != text.npos; end = text.find('\n', begin)) {
    std::string_view line = std::string_view(text).substr(begin, end - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty()) take(line);
    begin = end + 1;
  }
  text.erase(0, begin);
}

// Appends what can be read without waiting, at most kReadBytes. False at the end.
bool ReadSome(int file, std::string& text) {
  std::array<char, kReadBytes> bytes;
  const ssize_t count = ::read(file, bytes.data(), bytes.size());
  if (count > 0) text.append(bytes.data(), static_cast<size_t>(count));
  return count > 0 || (count < 0 && (errno == EAGAIN || errno == EINTR));
}

}  // namespace

Result<std::unique_ptr<ProcessTransport>> ProcessTransport::Start(const ToolServerEntry& entry,
                                                                  OnMessage on_message, Log log) {
  RL_ASSIGN_OR_RETURN(auto process, ChildProcess::Start(entry));
  const int wake = ::eventfd(0, EFD_CLOEXEC);
  if (wake < 0) {
    return MakeError(ErrorKind::kRuntime, "mcp.start", "the system has no more descriptors");
  }
  return std::unique_ptr<ProcessTransport>(
      new ProcessTransport(std::move(process), wake, std::move(on_message), std::move(log)));
}

ProcessTransport::ProcessTransport(std::unique_ptr<ChildProcess> process, int wake,
                                   OnMessage on_message, Log log)
    : process_(std::move(process)),
      wake_(wake),
      on_message_(std::move(on_message)),
      log_(std::move(log)),
      reader_([this] { Read(); }) {}

ProcessTransport::~ProcessTransport() {
  Close({ErrorKind::kRuntime, "mcp.closed", "the connection was closed"});
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !writing_; });
    process_->CloseInput();
  }
  process_->End(kTimeToEndServer);
  const uint64_t one = 1;
  static_cast<void>(::write(wake_, &one, sizeof(one)) == sizeof(one));
  reader_.join();
  ::close(wake_);
}

bool ProcessTransport::closed() const {
  const std::lock_guard lock(mutex_);
  return closed_.has_value();
}

Result<Message> ProcessTransport::Ask(int64_t id, const std::string& text, const Wait& wait) {
  {
    const std::lock_guard lock(mutex_);
    asked_[id] = std::nullopt;
  }
  Status status = Write(text, wait);
  std::unique_lock lock(mutex_);
  while (status && !asked_[id] && !closed_) {
    changed_.wait_for(lock, kLookAtWait);
    status = wait.Check();
  }
  const std::optional<Message> answer = std::move(asked_.extract(id).mapped());
  if (answer) return *answer;
  if (closed_) return tl::unexpected(*closed_);
  return tl::unexpected(std::move(status).error());
}

Status ProcessTransport::Tell(const std::string& text, const Wait& wait) {
  return Write(text, wait);
}

Status ProcessTransport::Write(const std::string& text, const Wait& wait) {
  const std::string line = text + "\n";
  RL_RETURN_IF_ERROR(BeginLine(wait));
  Status status = WriteLine(line, wait);
  const std::lock_guard lock(mutex_);
  writing_ = false;
  changed_.notify_all();
  return status;
}

Status ProcessTransport::BeginLine(const Wait& wait) {
  std::unique_lock lock(mutex_);
  while (!closed_) {
    if (!writing_) {
      writing_ = true;
      return OkStatus();
    }
    RL_RETURN_IF_ERROR(wait.Check());
    changed_.wait_for(lock, kLookAtWait);
  }
  return tl::unexpected(*closed_);
}

Status ProcessTransport::WriteLine(std::string_view line, const Wait& wait) {
  size_t written = 0;
  while (written < line.size()) {
    {
      const std::lock_guard state(mutex_);
      if (closed_) return tl::unexpected(*closed_);
    }
    if (const Status status = wait.Check(); !status) {
      if (written > 0) {
        Close({ErrorKind::kRuntime, "mcp.closed", "the server stopped reading within a message"});
      }
      return status;
    }
    const ssize_t count = ::write(process_->input(), &line[written], line.size() - written);
    if (count > 0) {
      written += static_cast<size_t>(count);
    } else if (errno == EAGAIN) {
      pollfd ready{.fd = process_->input(), .events = POLLOUT, .revents = 0};
      ::poll(&ready, 1, static_cast<int>(kLookAtWait.count()));
    } else if (errno != EINTR) {
      return CloseInput();
    }
  }
  return OkStatus();
}

Status ProcessTransport::CloseInput() {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kTimeToEndServer, [this] { return closed_.has_value(); });
  if (!closed_) {
    closed_ = Error{ErrorKind::kRuntime, "mcp.closed", "the server reads no more messages"};
    changed_.notify_all();
  }
  return tl::unexpected(*closed_);
}

void ProcessTransport::Close(Error error) {
  const std::lock_guard lock(mutex_);
  if (!closed_) closed_ = std::move(error);
  changed_.notify_all();
}

void ProcessTransport::Read() {
  try {
    ReadToTheEnd();
  } catch (const std::exception& failure) {  // std::bad_alloc
    Close({ErrorKind::kRuntime, "mcp.closed",
           fmt::format("what the server wrote could not be read: {}", failure.what())});
  }
}

void ProcessTransport::ReadToTheEnd() {
  bool has_errors = true;
  while (true) {
    std::array<pollfd, 3> ready = {{{.fd = wake_, .events = POLLIN, .revents = 0},
                                    {.fd = process_->output(), .events = POLLIN, .revents = 0},
                                    {.fd = process_->errors(), .events = POLLIN, .revents = 0}}};
    if (::poll(ready.data(), has_errors ? 3 : 2, -1) < 0) continue;
    if (ready[0].revents != 0) return;
    if (ready[2].revents != 0) has_errors = ReadSome(process_->errors(), errors_);
    ReadErrors();
    if (ready[1].revents != 0 && !ReadOutput()) break;
  }
  // The last lines that it wrote about its end.
  if (has_errors) ReadSome(process_->errors(), errors_);
  ReadErrors();
  const std::string end = process_->End(kTimeToEndServer);
  Close({ErrorKind::kRuntime, "mcp.closed",
         fmt::format("the server {}{}", end,
                     last_error_line_.empty() ? "" : ": " + last_error_line_)});
}

bool ProcessTransport::ReadOutput() {
  if (!ReadSome(process_->output(), output_)) return false;
  ForEachLine(output_, [this](std::string_view line) { TakeLine(line); });
  if (output_.size() > kMaxMessageBytes) {
    Close({ErrorKind::kRuntime, "mcp.too_large",
           fmt::format("the server wrote a line of more than {} bytes and was ended",
                       kMaxMessageBytes)});
  } else if (bad_lines_ > kMaxBadLines) {
    Close({ErrorKind::kRuntime, "mcp.protocol",
           fmt::format("the server wrote more than {} lines that are no messages of MCP, and was "
                       "ended",
                       kMaxBadLines)});
  }
  return !closed();
}

void ProcessTransport::ReadErrors() {
  ForEachLine(errors_, [this](std::string_view line) { TakeErrorLine(line); });
  if (errors_.size() > kReadBytes) TakeErrorLine(std::exchange(errors_, {}));
}

void ProcessTransport::TakeErrorLine(std::string_view line) {
  last_error_line_ = Printable(line, kShownLineBytes);
  if (++error_lines_ < kMaxErrorLines) return log_(last_error_line_);
  if (error_lines_ == kMaxErrorLines) log_("writes more lines, which are left out");
}

void ProcessTransport::TakeLine(std::string_view line) {
  const auto messages = ParseMessages(line);
  if (!messages) {
    if (++bad_lines_ == 1) {
      log_(fmt::format("writes a line that is no message: {}", Printable(line, kShownLineBytes)));
    }
    return;
  }
  for (const Message& message : *messages) Take(message);
}

void ProcessTransport::Take(const Message& message) {
  if (message.kind != Message::Kind::kAnswer) {
    const std::string answer = on_message_(message);
    if (!answer.empty()) {
      static_cast<void>(Write(answer, {.until = Clock::now() + kTimeToAnswer}));
    }
    return;
  }
  const std::lock_guard lock(mutex_);
  auto asked = asked_.end();
  if (message.id.is_number_integer()) {
    asked = asked_.find(message.id.get<int64_t>());
  } else if (message.id.is_null() && asked_.size() == 1) {
    asked = asked_.begin();  // it is about a text whose id the server could not read
  }
  if (asked == asked_.end()) return;  // nobody waits for it any more
  asked->second = message;
  changed_.notify_all();
}

}  // namespace rullama::server::mcp
