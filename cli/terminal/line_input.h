// Messages typed on a terminal: with line editing, history and bracketed paste where the terminal
// can (libedit), else line by line as the system's own line editing gives them.
// Prompts and typed text are shown on stderr, or on stdout if only that is a terminal. Thread
// safety: one thread at a time; one object per process.
#pragma once

#include <memory>
#include <string>

namespace rullama::cli {

class LineInput {
 public:
  enum class Event {
    kText,         // a line without its end, or several that were pasted together
    kEnd,          // Ctrl-D, the end of the input, or SIGTERM
    kInterrupted,  // Ctrl-C; what was typed is gone
  };

  virtual ~LineInput() = default;
  // `prompt` has no control characters.
  virtual Event Read(const std::string& prompt, std::string& text) = 0;
  // Whether a key was pressed during the last Read, other than Ctrl-C.
  [[nodiscard]] virtual bool typed() const = 0;
  // Whether lines are edited here, not by the terminal, which then shows keys at any time.
  [[nodiscard]] virtual bool edits() const = 0;
  // Text that can be recalled; the newest is added last.
  virtual void Remember(const std::string& text) = 0;

  // `color`: whether prompts may be bold.
  static std::unique_ptr<LineInput> Open(bool color);
};

}  // namespace rullama::cli
