// A terminal that does not echo keys while something else is written to it.
//
// One object at a time; RestoreTerminal() from any thread.
#pragma once

namespace rullama::cli {

// For its lifetime the terminal on stdin shows no key. Keys are kept for the next line,
// also over a Ctrl-C. Does nothing if stdin is not a terminal. Ctrl-Z and Ctrl-\\ leave the
// terminal to the shell, which restores it.
class QuietTerminal {
 public:
  QuietTerminal();
  QuietTerminal(const QuietTerminal&) = delete;
  QuietTerminal& operator=(const QuietTerminal&) = delete;
  ~QuietTerminal();
};

// For whoever ends the process at once, such as a handler of a signal: leaves the terminal as a
// QuietTerminal found it. Async-signal-safe.
void RestoreTerminal();

}  // namespace rullama::cli
