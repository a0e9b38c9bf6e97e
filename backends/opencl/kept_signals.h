// Signals belong to the program (rullama_abi.h), but PoCL and the LLVM inside it take them when
// they are loaded and when their first device is opened, Ctrl-C among them. Those of crashes are
// left to them: LLVM recovers from crashes of its compiler, and PoCL from divisions by zero.
//
// Thread safety: no other thread may set actions of signals meanwhile.
#pragma once

#include <array>
#include <csignal>
#include <cstddef>

namespace rullama::opencl {

// Gives every signal but those of crashes back, at its end, the action that it had at its
// beginning.
class KeptSignals {
 public:
  KeptSignals() {
    for (size_t i = 0; i < actions_.size(); ++i) {
      known_[i] = !IsOfACrash(NumberOf(i)) && ::sigaction(NumberOf(i), nullptr, &actions_[i]) == 0;
    }
  }
  ~KeptSignals() {
    for (size_t i = 0; i < actions_.size(); ++i) {
      struct sigaction now = {};
      if (!known_[i] || ::sigaction(NumberOf(i), nullptr, &now) != 0) continue;
      if (now.sa_handler != actions_[i].sa_handler) {
        ::sigaction(NumberOf(i), &actions_[i], nullptr);
      }
    }
  }
  KeptSignals(const KeptSignals&) = delete;
  KeptSignals& operator=(const KeptSignals&) = delete;

 private:
  static constexpr size_t kSignals = 31;  // all but those of real time
  static bool IsOfACrash(int signal) {
    return signal == SIGSEGV || signal == SIGBUS || signal == SIGABRT || signal == SIGILL ||
           signal == SIGFPE;
  }
  static int NumberOf(size_t index) { return static_cast<int>(index) + 1; }

  std::array<struct sigaction, kSignals> actions_ = {};
  std::array<bool, kSignals> known_ = {};
};

}  // namespace rullama::opencl
