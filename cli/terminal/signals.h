// The signal handlers of the program.
//
//   SIGINT   the first sets the cancel flag: work stops at the next token. A second one before the
//            work has stopped ends the process at once, with exit code 130. So does a plugin that
//            hangs: one that for five seconds (SetDrainSeconds) stays in a call without asking
//            whether to stop.
//   SIGTERM  sets the cancel flag; the process ends with 143, after five seconds at the latest (see
//            SetDrainSeconds), or at once with the second one.
//   SIGHUP   as SIGTERM, unless it was ignored when the program started (nohup), or is only noticed
//            (NoticeHangups).
//   SIGBUS   inside a watched mapping: a model file changed on disk; a message, and exit code 6.
//   SIGPIPE  ignored: a reader that goes away is an error of a write.
//   SIGXFSZ  ignored: a file that may not grow any more is an error of a write.
//   SIGSEGV and other crashes: crash_report.h.
//
// Handlers are process-wide, so is the state behind these functions; it is lock-free. Install once,
// from main. The others may be called from any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>

namespace rullama::cli {

inline constexpr int kExitInterrupted = 130;
inline constexpr int kExitTerminated = 143;

void InstallSignalHandlers();
// Takes back the signals of crashes, to be called when drivers have been loaded (crash_report.h).
void ReclaimSignalHandlers();

// Set by SIGINT, SIGTERM and SIGHUP.
std::shared_ptr<const std::atomic<bool>> CancelFlag();
// For work that should end at a good place, however long it takes to get there: from now on the
// first SIGINT writes `notice`, a literal, to stderr, any second one ends the process, and SIGTERM
// has no limit of time.
void FinishWorkFirst(const char* notice);
// Sets the time that the process may take to end after SIGTERM, and that a plugin may stay in a
// call after SIGINT; 0: no limit.
void SetDrainSeconds(unsigned seconds);
// From now on SIGHUP does no more than TakeHangup() tells.
void NoticeHangups();
// Whether SIGHUP came since the last call.
bool TakeHangup();
// While a line is edited an interrupt only sets the flags, however often: the editor has to leave
// the terminal as it found it. SIGWINCH and SIGCONT are noticed from then on.
void SetEditing(bool editing);
// Whether one of the two came since the last call.
bool TakeTerminalChange();
// While a line is edited: waits until stdin can be read, or has ended. False if a signal came
// first, also if it came before the call or is handled by another thread.
bool WaitForInput();

// Clears the flag after an interrupt that ended one answer only. A SIGTERM stays.
void ClearInterrupt();

// Clears all flags: the signals that came were the ordinary end of the command, as for a server.
void ForgetSignals();

bool Interrupted();  // by SIGINT since the last ClearInterrupt or ForgetSignals; not Terminated()
bool Terminated();   // by SIGTERM or SIGHUP

// A mapping whose loss SIGBUS reports; it must stay mapped until the process ends or
// ForgetMapping(). Beyond 64 mappings, a loss is reported as any other crash.
void WatchMapping(std::span<const std::byte> mapping);
void ForgetMapping(std::span<const std::byte> mapping);

}  // namespace rullama::cli
