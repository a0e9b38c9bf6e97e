// State of the program that a plugin in its process must leave as it is: how floats are rounded,
// what signals do, the working directory, the locale, the standard streams. Signals of
// crashes are not looked at: drivers take them, and programs take them back.
//
// Value type. Thread safety: the state of floats and the mask of signals are those of the calling
// thread.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <array>
#include <cstdint>
#include <string>

namespace rullama::conformance {

class ProcessState {
 public:
  static ProcessState Now();

  // "SIGINT is ignored; before, it had its default action": what has changed; empty if nothing has.
  [[nodiscard]] std::string ChangesSince(const ProcessState& before) const;

  // Rounds floats on this thread as when the object was made.
  void RestoreFloats() const;

 private:
  static constexpr int kSignals = 32;  // 1 to 31; nobody uses real-time signals here
  static constexpr int kStreams = 3;
  struct Disposition {
    void (*handler)(int) = nullptr;  // or what has its place with SA_SIGINFO
    int flags = 0;
    bool blocked = false;
    bool operator==(const Disposition&) const = default;
  };
  struct Stream {
    bool open = false;
    dev_t device = 0;
    ino_t file = 0;
    bool operator==(const Stream&) const = default;
  };

  uint64_t float_control_ = 0;  // modes of the processor, without its sticky flags
  std::array<Disposition, kSignals> signals_;
  std::array<Stream, kStreams> streams_;
  std::string directory_;
  std::string locale_;
};

}  // namespace rullama::conformance
