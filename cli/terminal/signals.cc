#include "cli/terminal/signals.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <string_view>

#include "cli/terminal/crash_report.h"
#include "cli/terminal/quiet_terminal.h"
#include "core/plugin/call_guard.h"

namespace rullama::cli {
namespace {

constexpr int kExitIo = 6;

// A mapping that is watched; an entry with `end` 0 is free.
struct WatchedMapping {
  std::atomic<uintptr_t> begin{0};
  std::atomic<uintptr_t> end{0};
};
constexpr size_t kMaxMappings = 64;

// The event that the alarm is set for.
enum class Alarm : uint8_t { kNone, kInterrupt, kTerminate };

// A handler can only reach what has static storage, and two threads may run handlers at once: all
// of it is lock-free atomics.
struct SignalState {
  std::atomic<bool> cancelled{false};   // by SIGINT, SIGTERM or SIGHUP
  std::atomic<bool> terminated{false};  // set before `cancelled`
  std::atomic<bool> editing{false};
  std::atomic<bool> terminal_changed{false};
  std::atomic<bool> hung_up{false};
  std::atomic<unsigned> drain_seconds{5};
  // A pipe that handlers write to, so that a wait cannot miss a signal; -1 until it is needed.
  std::atomic<int> wake_read{-1};
  std::atomic<int> wake_write{-1};
  std::atomic<const char*> interrupt_notice{nullptr};
  // An alarm may come that was set for something else: its handler looks at the clock.
  std::atomic<Alarm> alarm{Alarm::kNone};
  std::atomic<int64_t> terminate_ms{0};  // when the time after SIGTERM is over; 0: never
  // The time of an interrupt that has not been dealt with; plugins are looked at once a second.
  std::atomic<int64_t> interrupt_ms{0};
  std::atomic<int64_t> moved_ms{0};    // when a plugin was last seen to do anything
  std::atomic<uint64_t> begun{0};      // PluginActivity at the last look
  std::atomic<uint64_t> questions{0};  // the same
  std::atomic<bool> told{false};       // that the program is still at work
  std::array<WatchedMapping, kMaxMappings> mappings;
};
static_assert(std::atomic<Alarm>::is_always_lock_free && std::atomic<int64_t>::is_always_lock_free);
SignalState signals;

constexpr int64_t kMsPerSecond = 1000;

int64_t NowMs() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * kMsPerSecond + now.tv_nsec / 1'000'000;
}

void Say(std::string_view text) {
  const int saved = errno;
  // Nothing can be done about an error here.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
  errno = saved;
}

[[noreturn]] void EndProcess(int code) {
  RestoreTerminal();
  ::_exit(code);
}

void Wake() {
  const int fd = signals.wake_write.load();
  if (fd < 0) return;
  const int saved = errno;
  // A full pipe wakes as well.
  [[maybe_unused]] const ssize_t written = ::write(fd, "", 1);
  errno = saved;
}

// Begins to look at plugins, unless SIGTERM has come.
void WatchInterrupt() {
  const PluginActivity now = CurrentPluginActivity();
  const int64_t now_ms = NowMs();
  signals.begun.store(now.begun);
  signals.questions.store(now.questions);
  signals.interrupt_ms.store(now_ms);
  signals.moved_ms.store(now_ms);
  signals.told.store(false);
  Alarm none = Alarm::kNone;
  if (signals.alarm.compare_exchange_strong(none, Alarm::kInterrupt)) ::alarm(1);
}

void OnInterrupt(int) {
  // Set first: two threads may run this at once.
  const bool pending = signals.cancelled.exchange(true);
  if (!signals.editing.load()) {
    if (pending || signals.alarm.load() != Alarm::kNone) EndProcess(kExitInterrupted);
    if (const char* notice = signals.interrupt_notice.load()) {
      Say(notice);
    } else {
      WatchInterrupt();
    }
  }
  Wake();
}

void OnTerminalChange(int) {
  signals.terminal_changed.store(true);
  Wake();
}

void OnHangup(int) { signals.hung_up.store(true); }

// Ends the process if its time after SIGTERM is over, else sets the alarm for that moment.
void AwaitTermination() {
  const int64_t end = signals.terminate_ms.load();
  if (end == 0) return;
  const int64_t left = end - NowMs();
  if (left <= 0) EndProcess(kExitTerminated);
  ::alarm(static_cast<unsigned>((left + kMsPerSecond - 1) / kMsPerSecond));
}

void OnTerminate(int) {
  if (signals.terminated.exchange(true)) EndProcess(kExitTerminated);
  signals.cancelled.store(true);
  Wake();
  const int64_t seconds = signals.drain_seconds.load();
  signals.terminate_ms.store(seconds == 0 ? 0 : NowMs() + seconds * kMsPerSecond);
  signals.alarm.store(Alarm::kTerminate);
  AwaitTermination();
}

void SayFunction(const PluginActivity& activity) {
  if (activity.function != nullptr) Say(activity.function);
}

// Looks at plugins. One that hangs would never let the interrupt be dealt with: it is in a call,
// begins none and does not ask whether to stop.
void LookAtInterrupt() {
  // ClearInterrupt() on another thread came between the two halves of OnInterrupt().
  if (!signals.cancelled.load()) {
    Alarm set = Alarm::kInterrupt;
    signals.alarm.compare_exchange_strong(set, Alarm::kNone);
    return;
  }
  const PluginActivity now = CurrentPluginActivity();
  const int64_t now_ms = NowMs();
  const bool begun = signals.begun.exchange(now.begun) != now.begun;
  const bool asked = signals.questions.exchange(now.questions) != now.questions;
  if (now.running == 0 || begun || asked) signals.moved_ms.store(now_ms);
  const int64_t limit = signals.drain_seconds.load();
  if (limit > 0 && now_ms - signals.moved_ms.load() >= limit * kMsPerSecond) {
    Say("\nrullama: error: a plugin hangs in ");
    SayFunction(now);
    Say(": since Ctrl-C it has neither returned nor asked whether to stop [plugin.hang]\n");
    EndProcess(kExitInterrupted);
  }
  const bool is_due = now_ms - signals.interrupt_ms.load() >= kMsPerSecond;
  if (is_due && !signals.told.exchange(true)) {
    Say("\nrullama: still at work");
    if (now.running > 0) {
      Say(" in ");
      SayFunction(now);
      Say(" of a plugin");
    }
    Say("; Ctrl-C again ends the program at once\n");
  }
  // After SIGTERM has come meanwhile this alarm comes too early, which its handler sees.
  ::alarm(1);
}

void OnAlarm(int) {
  switch (signals.alarm.load()) {
    case Alarm::kNone:
      return;
    case Alarm::kInterrupt:
      return LookAtInterrupt();
    case Alarm::kTerminate:
      return AwaitTermination();
  }
}

bool IsWatched(uintptr_t address) {
  return std::ranges::any_of(signals.mappings, [address](const WatchedMapping& mapping) {
    return address >= mapping.begin.load() && address < mapping.end.load();
  });
}

void OnBusError(int signal, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  if (IsWatched(address)) {
    Say("\nrullama: error: the model file changed or shrank on disk while it was in use; do not "
        "replace the file of a running program [io.mapped_file_changed]\n");
    EndProcess(kExitIo);
  }
  // A crash like any other: die as usual, with a core dump where those are enabled.
  ReportCrash(signal, info, context);
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

// Without SA_RESTART a signal ends a read from the terminal, as an interrupt has to.
void Handle(int signal, void (*handler)(int), int flags = 0) {
  struct sigaction action {};
  action.sa_handler = handler;
  // On this thread one at a time: what they set belongs together.
  sigemptyset(&action.sa_mask);
  for (const int other : {SIGINT, SIGTERM, SIGHUP, SIGALRM}) sigaddset(&action.sa_mask, other);
  action.sa_flags = flags;
  ::sigaction(signal, &action, nullptr);
}

void HandleBusError() {
  struct sigaction action {};
  action.sa_sigaction = OnBusError;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace

void InstallSignalHandlers() {
  Handle(SIGPIPE, SIG_IGN);
  Handle(SIGXFSZ, SIG_IGN);
  Handle(SIGINT, OnInterrupt);
  Handle(SIGTERM, OnTerminate);
  // A program that nohup starts is to outlive its terminal.
  struct sigaction hangup {};
  if (::sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN) {
    Handle(SIGHUP, OnTerminate);
  }
  Handle(SIGALRM, OnAlarm, SA_RESTART);
  InstallCrashHandlers();
  HandleBusError();
}

void ReclaimSignalHandlers() {
  ReclaimCrashHandlers();
  HandleBusError();
}

std::shared_ptr<const std::atomic<bool>> CancelFlag() {
  // Shares nothing: the flag lives as long as the process.
  return {std::shared_ptr<void>(), &signals.cancelled};
}

void FinishWorkFirst(const char* notice) {
  signals.interrupt_notice.store(notice);
  signals.drain_seconds.store(0);
}

void SetDrainSeconds(unsigned seconds) { signals.drain_seconds.store(seconds); }

void SetEditing(bool editing) {
  signals.editing.store(editing);
  if (!editing || signals.wake_read.load() >= 0) return;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0) {
    signals.wake_read.store(ends[0]);
    signals.wake_write.store(ends[1]);
  }
  Handle(SIGWINCH, OnTerminalChange);
  Handle(SIGCONT, OnTerminalChange);
}

void NoticeHangups() { Handle(SIGHUP, OnHangup); }
bool TakeHangup() { return signals.hung_up.exchange(false); }

bool TakeTerminalChange() { return signals.terminal_changed.exchange(false); }

bool WaitForInput() {
  const int wake = signals.wake_read.load();
  pollfd ready[] = {{STDIN_FILENO, POLLIN, 0}, {wake, POLLIN, 0}};  // -1 is passed over
  const int count = ::poll(ready, 2, -1);
  if (count < 0) return false;
  char drained[64];
  bool woken = false;
  while (ready[1].revents != 0 && ::read(wake, drained, sizeof(drained)) > 0) woken = true;
  return !woken;
}

void ClearInterrupt() {
  // The alarm stays set, as SIGTERM may set it at this moment: nothing is due when it comes.
  Alarm set = Alarm::kInterrupt;
  signals.alarm.compare_exchange_strong(set, Alarm::kNone);
  signals.cancelled.store(false);
  if (signals.terminated.load()) signals.cancelled.store(true);
}

void ForgetSignals() {
  signals.terminated.store(false);
  signals.cancelled.store(false);
}

bool Interrupted() { return signals.cancelled.load() && !signals.terminated.load(); }
bool Terminated() { return signals.terminated.load(); }

void WatchMapping(std::span<const std::byte> mapping) {
  const auto begin = reinterpret_cast<uintptr_t>(mapping.data());
  for (WatchedMapping& entry : signals.mappings) {
    uintptr_t free_end = 0;
    if (!entry.end.compare_exchange_strong(free_end, 1)) continue;  // not yet a range
    entry.begin.store(begin);
    entry.end.store(begin + mapping.size());
    return;
  }
}

void ForgetMapping(std::span<const std::byte> mapping) {
  const auto begin = reinterpret_cast<uintptr_t>(mapping.data());
  for (WatchedMapping& entry : signals.mappings) {
    if (entry.begin.load() != begin || entry.end.load() != begin + mapping.size()) continue;
    entry.end.store(0);
    return;
  }
}

}  // namespace rullama::cli
