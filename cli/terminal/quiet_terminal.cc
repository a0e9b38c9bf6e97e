#include "cli/terminal/quiet_terminal.h"

#include <termios.h>
#include <unistd.h>

#include <atomic>

namespace rullama::cli {
namespace {

// A handler can only reach what has static storage.
termios found_terminal;  // written while `terminal_is_quiet` is false
std::atomic<bool> terminal_is_quiet{false};
static_assert(std::atomic<bool>::is_always_lock_free);

}  // namespace

QuietTerminal::QuietTerminal() {
  if (::tcgetattr(STDIN_FILENO, &found_terminal) != 0) return;
  termios quiet = found_terminal;
  quiet.c_lflag &= ~static_cast<tcflag_t>(ECHO | ECHONL);
  quiet.c_lflag |= NOFLSH;  // Ctrl-C keeps what was typed
  terminal_is_quiet.store(true);
  ::tcsetattr(STDIN_FILENO, TCSANOW, &quiet);
}

QuietTerminal::~QuietTerminal() { RestoreTerminal(); }

// Restored first: a handler that ends the process between the two restores it once more. A process
// in the background would be stopped here, and its terminal is the shell's.
void RestoreTerminal() {
  if (!terminal_is_quiet.load()) return;
  if (::tcgetpgrp(STDIN_FILENO) == ::getpgrp()) {
    ::tcsetattr(STDIN_FILENO, TCSANOW, &found_terminal);
  }
  terminal_is_quiet.store(false);
}

}  // namespace rullama::cli
