#include "cli/terminal/console.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "core/base/printable.h"
#include "core/base/utf8.h"

namespace rullama::cli {
namespace {

constexpr int kBarWidth = 30;
constexpr int kMinBarWidth = 5;
constexpr int kMaxToldColumns = 10'000;  // that COLUMNS may say
constexpr size_t kReadBytes = 64 * 1024;
// The longest message. A name in a model file may have 2^28 bytes, and all of them may be escapes.
constexpr size_t kMaxMessageBytes = 2048;

// Writes everything or returns errno.
int WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<size_t>(written));
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return errno;
    // Someone made the descriptor non-blocking: wait instead of spinning.
    pollfd ready{fd, POLLOUT, 0};
    ::poll(&ready, 1, -1);
  }
  return 0;
}

Result<std::string> ReadAll(int fd, size_t limit, std::string_view what, std::string_view id) {
  std::string text;
  std::array<char, kReadBytes> buffer;
  for (;;) {
    const ssize_t count = ::read(fd, buffer.data(), buffer.size());
    if (count == 0) return text;
    if (count < 0) {
      if (errno == EINTR) continue;
      return MakeError(ErrorKind::kIo, id, "cannot read {}: {}", what, std::strerror(errno));
    }
    text.append(buffer.data(), static_cast<size_t>(count));
    if (text.size() > limit) {
      return MakeError(ErrorKind::kUsage, "input.limit", "{} is longer than {} bytes", what, limit);
    }
  }
}

// The line of a bar, at most `columns` wide: without its note, without its drawing, or nothing at
// all, where there is no room.
std::string DrawBar(std::string_view label, int64_t done, int64_t total, std::string_view note,
                    int columns) {
  const std::string counts = fmt::format("{}/{}{}", done, total, note);
  const auto taken = static_cast<int64_t>(label.size() + counts.size() + 4);  // " [] "
  const int64_t width = std::min<int64_t>(kBarWidth, columns - taken);
  if (width >= kMinBarWidth) {
    const auto filled = static_cast<size_t>(done * width / total);
    std::string bar(filled, '#');
    bar.resize(static_cast<size_t>(width), '.');
    return fmt::format("{} [{}] {}", label, bar, counts);
  }
  if (!note.empty()) return DrawBar(label, done, total, {}, columns);
  std::string percent = fmt::format("{} {} %", label, done * 100 / total);
  return percent.size() <= static_cast<size_t>(columns) ? percent : std::string();
}

}  // namespace

Verbosity VerbosityOf(std::string_view log_level) {
  if (log_level == "off" || log_level == "error") return Verbosity::kErrors;
  return log_level == "warn" ? Verbosity::kWarnings : Verbosity::kNotes;
}

void OccupyStandardStreams() {
  // Descriptors are handed out lowest first, so each gap is filled by its own stand-in: one that
  // cannot be read for stdin, one that cannot be written for the others.
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) != -1 || errno != EBADF) continue;
    if (::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd) ::_exit(6);
  }
}

void Console::set_color(ColorMode color) {
  stdout_is_terminal_ = ::isatty(STDOUT_FILENO) == 1;
  stderr_is_terminal_ = ::isatty(STDERR_FILENO) == 1;
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  const bool dumb = term != nullptr && std::strcmp(term, "dumb") == 0;
  const bool wanted = (no_color == nullptr || *no_color == '\0') && !dumb;
  stderr_draws_ = stderr_is_terminal_ && !dumb;
  stdout_draws_ = stdout_is_terminal_ && wanted && color != ColorMode::kNever;
  color_ =
      color == ColorMode::kAlways || (color == ColorMode::kAuto && stderr_is_terminal_ && wanted);
}

Status Console::Write(std::string_view text) {
  const int error = WriteAll(STDOUT_FILENO, text);
  if (error == 0) return OkStatus();
  if (error == EPIPE) {
    return MakeError(ErrorKind::kIo, kPipeClosedId, "the reader of stdout went away");
  }
  return MakeError(ErrorKind::kIo, "io.stdout", "cannot write to stdout: {}", std::strerror(error));
}

void Console::WriteError(std::string_view text) { WriteAll(STDERR_FILENO, text); }

void Console::Note(std::string_view text) {
  if (verbosity_ < Verbosity::kNotes) return;
  WriteError(fmt::format("rullama: {}\n", Printable(text, kMaxMessageBytes)));
}

void Console::Warn(std::string_view text) {
  if (verbosity_ < Verbosity::kWarnings) return;
  WriteError(fmt::format("rullama: {} {}\n", Colored("warning:", "33"),
                         Printable(text, kMaxMessageBytes)));
}

void Console::Fail(const Error& error) {
  WriteError(fmt::format("rullama: {} {}\n", Colored("error:", "31"),
                         Printable(error.ToString(), kMaxMessageBytes)));
}

std::string Console::Colored(std::string_view text, std::string_view code) const {
  if (!color_) return std::string(text);
  return fmt::format("\x1b[{}m{}\x1b[0m", code, text);
}

TerminalSize SizeOfTerminal(int fd) {
  TerminalSize size;
  winsize found{};
  if (::ioctl(fd, TIOCGWINSZ, &found) == 0 && found.ws_col > 1 && found.ws_row > 1) {
    size = {found.ws_col, found.ws_row};
    return size;
  }
  const char* columns = std::getenv("COLUMNS");
  const std::string_view text = columns == nullptr ? "" : columns;
  int told = 0;
  std::from_chars(text.data(), text.data() + text.size(), told);
  if (told > 1 && told <= kMaxToldColumns) size.columns = told;
  return size;
}

void Progress::Update(int64_t done, int64_t total, std::string_view note) {
  if (total <= 0 || console_.verbosity() < Verbosity::kNotes) return;
  if (!console_.stderr_draws()) {
    const int64_t tenth = done * 10 / total;
    if (tenth > last_tenth_) console_.Note(fmt::format("{}: {} %", label_, tenth * 10));
    last_tenth_ = std::max(last_tenth_, tenth);
    return;
  }
  // The last column stays free: a cursor beyond it may already be on the next row.
  const int columns = SizeOfTerminal(STDERR_FILENO).columns - 1;
  console_.WriteError("\r" + DrawBar(label_, done, total, note, columns) + "\x1b[K");
  shown_ = true;
}

void Progress::Clear() {
  if (shown_) console_.WriteError("\r\x1b[K");
  shown_ = false;
}

Result<std::string> ReadStdin(size_t limit) {
  return ReadAll(STDIN_FILENO, limit, "stdin", "io.stdin");
}

bool StdinBringsData() {
  struct stat info {};
  if (::fstat(STDIN_FILENO, &info) != 0) return false;
  return S_ISREG(info.st_mode) || S_ISFIFO(info.st_mode) || S_ISSOCK(info.st_mode);
}

bool StdinIsTerminal() { return ::isatty(STDIN_FILENO) == 1; }

Result<std::string> ReadTextFile(const std::string& path, size_t limit) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return MakeError(ErrorKind::kIo, errno == EACCES ? "io.permission" : "io.open",
                     "cannot open '{}': {}", path, std::strerror(errno));
  }
  auto text = ReadAll(fd, limit, fmt::format("'{}'", path), "io.read");
  ::close(fd);
  return text;
}

Status CheckUtf8(std::string_view text, std::string_view what) {
  const auto offset = FindInvalidUtf8(text);
  if (!offset) return OkStatus();
  return MakeError(ErrorKind::kUsage, "text.utf8",
                   "{} is not UTF-8 text: the byte at offset {} begins no character", what,
                   *offset);
}

}  // namespace rullama::cli
