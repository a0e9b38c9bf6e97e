// The signals that end a process because of a fault in its code.
#pragma once

#include <algorithm>
#include <array>
#include <csignal>

namespace rullama {

inline constexpr std::array kCrashSignals = {SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE};

constexpr bool IsCrashSignal(int signal) {
  return std::ranges::find(kCrashSignals, signal) != kCrashSignals.end();
}

}  // namespace rullama
