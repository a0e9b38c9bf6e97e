#include "conformance/last_words.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstddef>
#include <string_view>

#include "conformance/guarded_memory.h"
#include "core/base/alternate_stack.h"
#include "core/base/crash_signals.h"
#include "core/plugin/call_guard.h"

namespace rullama::conformance {
namespace {

// A handler can only reach what has static storage.
volatile sig_atomic_t pipe_of_parent = -1;
std::array<bool, kCrashSignals.size()> ours = {};  // whose handlers are installed here

void Write(std::string_view text) {
  // Nothing can be done about an error here.
  [[maybe_unused]] const ssize_t written = ::write(pipe_of_parent, text.data(), text.size());
}

// Text of a plugin must not end the line.
void WriteInLine(std::string_view text) {
  for (size_t end = 0; (end = text.find('\n')) != std::string_view::npos;) {
    Write(text.substr(0, end));
    Write(" ");
    text.remove_prefix(end + 1);
  }
  Write(text);
}

void WriteFault(const FaultText& fault) {
  Write(": it ");
  if (fault.bytes > 0) {
    std::array<char, 24> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), fault.bytes).ptr;
    Write("touched memory ");
    Write({digits.data(), static_cast<size_t>(end - digits.data())});
    Write(" bytes beyond the end of ");
  } else {
    Write("wrote to ");
  }
  WriteInLine(fault.name);
}

// The parent says that it was a crash, and the signal.
void OnCrash(int signal, siginfo_t* info, void* context) {
  const PluginCall call = CurrentPluginCall();
  Write({&kLastWords, 1});
  if (!call.plugin.empty()) {
    Write(" in ");
    Write(call.function);
  }
  const bool of_address = signal == SIGSEGV || signal == SIGBUS;
  const FaultText fault = of_address ? DescribeFault(info->si_addr) : FaultText();
  if (!fault.name.empty()) {
    WriteFault(fault);
  } else if (StackIsFull(signal, info, context)) {
    Write(": the stack is full");
  }
  Write("\n");
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

void OnEnd(std::string_view text) {
  Write({&kLastWords, 1});
  WriteInLine(text);
  Write("\n");
}

}  // namespace

void SendLastWordsTo(int file) {
  pipe_of_parent = file;
  static AlternateStack* const kStack = new AlternateStack;  // as long as the process
  static_cast<void>(kStack);
  for (size_t i = 0; i < kCrashSignals.size(); ++i) {
    struct sigaction action {};
    ours[i] = ::sigaction(kCrashSignals[i], nullptr, &action) == 0 && action.sa_handler == SIG_DFL;
  }
  TakeCrashSignalsBack();
  InstallTerminateHandler(OnEnd);
}

void TakeCrashSignalsBack() {
  for (size_t i = 0; i < kCrashSignals.size(); ++i) {
    if (!ours[i]) continue;
    struct sigaction action {};
    action.sa_sigaction = OnCrash;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    ::sigaction(kCrashSignals[i], &action, nullptr);
  }
}

}  // namespace rullama::conformance
