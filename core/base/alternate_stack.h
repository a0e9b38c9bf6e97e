// A stack for handlers of signals on this thread: when its own is full, a report of that needs room
// elsewhere. The program's main thread has one too (cli/terminal/crash_report.cc).
//
// Ownership: holds the memory; made and destroyed by the same thread. Errors: none; without memory
// there is no such stack, and a thread that has one already, from a sanitizer for instance, keeps
// it.
#pragma once

#include <signal.h>

#include <cstddef>
#include <memory>

namespace rullama {

class AlternateStack {
 public:
  AlternateStack();
  AlternateStack(const AlternateStack&) = delete;
  AlternateStack& operator=(const AlternateStack&) = delete;
  ~AlternateStack();

 private:
  std::unique_ptr<std::byte[]> memory_;  // null if the thread keeps what it had
};

// Whether SIGSEGV came because the stack is full; the arguments are those of the handler.
// Async-signal-safe.
bool StackIsFull(int signal, const siginfo_t* info, const void* context);

}  // namespace rullama
