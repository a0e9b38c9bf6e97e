#include "conformance/process_state.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <clocale>
#include <cstring>
#include <string_view>
#include <utility>

#include "core/base/crash_signals.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace rullama::conformance {
namespace {

// The modes of rounding, of denormals and of traps.
#if defined(__x86_64__)
constexpr uint64_t kModes = 0xFFC0;  // of MXCSR
uint64_t FloatControl() { return _mm_getcsr() & kModes; }
void SetFloatControl(uint64_t modes) { _mm_setcsr(static_cast<unsigned>(modes)); }
#elif defined(__aarch64__)
uint64_t FloatControl() {
  uint64_t modes = 0;
  asm volatile("mrs %0, fpcr" : "=r"(modes));
  return modes;
}
void SetFloatControl(uint64_t modes) { asm volatile("msr fpcr, %0" : : "r"(modes)); }
#else
uint64_t FloatControl() { return 0; }
void SetFloatControl(uint64_t) {}
#endif

std::string NameOfSignal(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", signal);
}

std::string_view WhatItDoes(void (*handler)(int)) {
  if (handler == SIG_IGN) return "is ignored";
  return handler == SIG_DFL ? "has its default action" : "has a handler";
}

// The action that a signal had before.
template <typename Disposition>
std::string_view DidBefore(const Disposition& now, const Disposition& then) {
  if (then.handler == SIG_IGN) return "was ignored";
  if (then.handler == SIG_DFL) return "had its default action";
  return now.handler == then.handler ? "had other flags" : "had another handler";
}

class Changes {
 public:
  void Add(std::string change) { text_ += (text_.empty() ? "" : "; ") + std::move(change); }
  [[nodiscard]] std::string text() && { return std::move(text_); }

 private:
  std::string text_;
};

}  // namespace

ProcessState ProcessState::Now() {
  ProcessState state;
  state.float_control_ = FloatControl();
  sigset_t blocked;
  sigemptyset(&blocked);
  ::pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  for (int signal = 1; signal < kSignals; ++signal) {
    struct sigaction action {};
    if (IsCrashSignal(signal) || ::sigaction(signal, nullptr, &action) != 0) continue;
    // The C library adds this flag of the kernel to every action that was ever set.
    constexpr int kRestorer = 0x04000000;
    state.signals_[static_cast<size_t>(signal)] = {action.sa_handler, action.sa_flags & ~kRestorer,
                                                   sigismember(&blocked, signal) == 1};
  }
  for (int stream = 0; stream < kStreams; ++stream) {
    struct stat file {};
    if (::fstat(stream, &file) != 0) continue;
    state.streams_[static_cast<size_t>(stream)] = {true, file.st_dev, file.st_ino};
  }
  std::array<char, PATH_MAX> directory{};
  if (::getcwd(directory.data(), directory.size()) != nullptr) state.directory_ = directory.data();
  if (const char* locale = std::setlocale(LC_ALL, nullptr)) state.locale_ = locale;
  return state;
}

std::string ProcessState::ChangesSince(const ProcessState& before) const {
  Changes changes;
  if (float_control_ != before.float_control_) {
    changes.Add(
        fmt::format("the modes of the processor for floats (rounding, denormals, traps) are "
                    "{:#x}, and were {:#x}",
                    float_control_, before.float_control_));
  }
  for (int signal = 1; signal < kSignals; ++signal) {
    const Disposition& now = signals_[static_cast<size_t>(signal)];
    const Disposition& then = before.signals_[static_cast<size_t>(signal)];
    if (now == then) continue;
    const bool mask_only = now.handler == then.handler && now.flags == then.flags;
    changes.Add(mask_only ? fmt::format("{} is {}", NameOfSignal(signal),
                                        now.blocked ? "blocked" : "not blocked any more")
                          : fmt::format("{} {}; before, it {}", NameOfSignal(signal),
                                        WhatItDoes(now.handler), DidBefore(now, then)));
  }
  constexpr std::array<std::string_view, kStreams> kNames = {"standard input", "standard output",
                                                             "standard error"};
  for (size_t stream = 0; stream < kStreams; ++stream) {
    if (streams_[stream] == before.streams_[stream]) continue;
    changes.Add(
        fmt::format("{} is {}", kNames[stream], streams_[stream].open ? "another file" : "closed"));
  }
  if (directory_ != before.directory_) {
    changes.Add(
        fmt::format("the working directory is '{}', and was '{}'", directory_, before.directory_));
  }
  if (locale_ != before.locale_) {
    changes.Add(fmt::format("the locale is '{}', and was '{}'", locale_, before.locale_));
  }
  return std::move(changes).text();
}

void ProcessState::RestoreFloats() const {
  if (FloatControl() != float_control_) SetFloatControl(float_control_);
}

}  // namespace rullama::conformance
