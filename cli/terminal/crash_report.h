// Reports crashes: drivers and plugins run in the program's process, and a fault in one of them (a
// damaged cache of compiled kernels is enough) would otherwise end it without a message.
//
// SIGSEGV, SIGBUS, SIGABRT, SIGILL and SIGFPE print version, plugin call, backend, device, driver
// and what to do (delete caches; for a plugin of the user's own, how to find the op and the line),
// and then end the process as they would have without a handler, with a core dump where those are
// enabled. Handlers that somebody else has installed, a sanitizer for instance, stay.
//
// Process-wide. Install once, from main; Describe* from one thread at a time.
#pragma once

#include <signal.h>

#include <string_view>

namespace rullama::cli {

void InstallCrashHandlers();
// Takes back signals that a library has taken since: LLVM, which is in several drivers, has
// handlers of its own, which would keep abort() from reaching ours.
void ReclaimCrashHandlers();

// Notes the caches of compiled kernels that exist now: ours and those of known drivers.
void DescribeCachesForCrash();
// Notes the device in use.
void DescribeDeviceForCrash(std::string_view backend, std::string_view device,
                            std::string_view driver);

// Notes a plugin that is not part of this installation, by its file and, once it is known, the name
// of its backend: a crash in it is for its author, who gets other advice. A crash outside of calls
// names all of them.
void DescribePluginForCrash(std::string_view file, std::string_view backend);

// Prints the report, for a handler; async-signal-safe. `context` is what the kernel gave it.
void ReportCrash(int signal, const siginfo_t* info, void* context);

}  // namespace rullama::cli
