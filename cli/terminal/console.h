// The program's two streams. The answer goes to stdout, everything else to stderr, so that
// `rullama ... > file` holds the answer and nothing more. Nothing is buffered here: what was
// written is with the reader.
//
// Thread safety: Note(), Warn(), Fail() and WriteError() from any thread once the colours and the
// verbosity are set; all else one thread at a time. Errors of stdout: io.pipe_closed (the reader
// went away, no reason to complain), io.stdout; both kIo. Errors of stderr are ignored: there is
// nowhere to tell.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/status.h"
#include "engine/host_hooks.h"

namespace rullama::cli {

inline constexpr std::string_view kPipeClosedId = "io.pipe_closed";

// The messages on stderr in addition to the output of commands, chosen by RULLAMA_LOG, -q and -v.
enum class Verbosity { kErrors, kWarnings, kNotes };
// The verbosity for a log level: "off" and "error" leave errors, "warn" warnings too, everything
// else notes.
Verbosity VerbosityOf(std::string_view log_level);

enum class ColorMode { kAuto, kAlways, kNever };

// Keeps descriptors 0 to 2 occupied: in a process started without them, the first file opened would
// become "stdout" and be written to. The replacements are descriptors that fail when used.
void OccupyStandardStreams();

class Console final : public Notices {
 public:
  // Auto: colours on a terminal, unless NO_COLOR is set or TERM is dumb.
  explicit Console(ColorMode color = ColorMode::kAuto) { set_color(color); }
  void set_color(ColorMode color);
  void set_verbosity(Verbosity verbosity) { verbosity_ = verbosity; }
  [[nodiscard]] Verbosity verbosity() const { return verbosity_; }

  // Writes all of `text` to stdout.
  Status Write(std::string_view text);

  // Writes one line to stderr, "rullama: <text>", if the verbosity admits it. Errors always appear.
  // Text from a model file or a plugin cannot act on the terminal (core/base/printable.h).
  void Note(std::string_view text) override;
  void Warn(std::string_view text) override;
  void Fail(const Error& error);
  // Writes `text` to stderr without changes.
  void WriteError(std::string_view text);

  [[nodiscard]] bool stdout_is_terminal() const { return stdout_is_terminal_; }
  [[nodiscard]] bool stderr_is_terminal() const { return stderr_is_terminal_; }
  // Whether stdout is a terminal that may be drawn on: colours are not refused, the cursor moves.
  [[nodiscard]] bool stdout_draws() const { return stdout_draws_; }
  // Whether stderr is a terminal on which the cursor moves.
  [[nodiscard]] bool stderr_draws() const { return stderr_draws_; }
  // `text` in a terminal colour (an SGR code such as "31") if stderr shows colours.
  [[nodiscard]] std::string Colored(std::string_view text, std::string_view code) const;

 private:
  bool stdout_is_terminal_ = false;
  bool stderr_is_terminal_ = false;
  bool stdout_draws_ = false;
  bool stderr_draws_ = false;
  bool color_ = false;
  Verbosity verbosity_ = Verbosity::kNotes;
};

struct TerminalSize {
  int columns = 80;
  int rows = 24;
};
// The size of the terminal at `fd`; if it does not report one, COLUMNS or 80 x 24.
TerminalSize SizeOfTerminal(int fd);

// Shows the progress of long work on stderr, as notes are: a bar on a terminal, no wider than it;
// else one line for each tenth.
class Progress {
 public:
  Progress(Console& console, std::string label) : console_(console), label_(std::move(label)) {}
  ~Progress() { Clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `note` is shown after the bar if there is room for it.
  void Update(int64_t done, int64_t total, std::string_view note = {});
  // Removes the bar.
  void Clear();

 private:
  Console& console_;
  std::string label_;
  int64_t last_tenth_ = 0;
  bool shown_ = false;
};

// Reads all of stdin, at most `limit` bytes. Errors (kIo): io.stdin; input.limit (kUsage).
Result<std::string> ReadStdin(size_t limit);
// Whether stdin is a file or a pipe, that is, brings data without anyone typing.
bool StdinBringsData();
bool StdinIsTerminal();

// Reads all of a file that the user named. Errors: io.open, io.permission, io.read (kIo);
// input.limit.
Result<std::string> ReadTextFile(const std::string& path, size_t limit);

// Checks what the user gave as text; `what` names it. Errors (kUsage): text.utf8, with the offset.
Status CheckUtf8(std::string_view text, std::string_view what);

}  // namespace rullama::cli
