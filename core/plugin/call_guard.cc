#include "core/plugin/call_guard.h"

#include <cstdio>
#include <cstdlib>
#include <exception>

#include "core/base/status.h"

namespace rullama {
namespace {

// The call that this thread is in. The terminate handler and signal handlers, which get no
// arguments, read it.
thread_local PluginCall current_call;

void PrintException() noexcept {
  try {
    if (const std::exception_ptr exception = std::current_exception()) {
      std::rethrow_exception(exception);
    }
    std::fputs("no exception", stderr);
  } catch (const std::exception& e) {
    std::fputs(e.what(), stderr);
  } catch (...) {
    std::fputs("an exception that is not a std::exception", stderr);
  }
}

// Plain stdio: whatever failed may have been the allocator or the logger.
[[noreturn]] void OnTerminate() {
  const PluginCall note = current_call;
  if (note.plugin.empty()) {
    std::fputs("rullama: internal error: terminated: ", stderr);
    PrintException();
    std::fputs("\n", stderr);
    std::abort();
  }
  std::fprintf(stderr, "rullama: error: plugin '%.*s' threw an exception out of %.*s: ",
               static_cast<int>(note.plugin.size()), note.plugin.data(),
               static_cast<int>(note.function.size()), note.function.data());
  PrintException();
  std::fputs(
      "; a plugin has to return an error code instead; report this to its authors "
      "[plugin.exception]\n",
      stderr);
  std::fflush(stderr);
  // No destructors and no atexit: the plugin's state is unknown.
  std::_Exit(static_cast<int>(ErrorKind::kBackend));
}

// Runs in the thread that called exit, which is inside a call of a plugin only if that plugin did.
void OnExit() {
  const PluginCall note = current_call;
  if (note.plugin.empty()) return;
  std::fprintf(stderr,
               "rullama: error: plugin '%.*s' ended the program inside %.*s by a call of exit; "
               "report this to its authors [plugin.exit]\n",
               static_cast<int>(note.plugin.size()), note.plugin.data(),
               static_cast<int>(note.function.size()), note.function.data());
  std::fflush(nullptr);
  std::_Exit(static_cast<int>(ErrorKind::kBackend));
}

}  // namespace

ScopedPluginCall::ScopedPluginCall(std::string_view plugin, std::string_view function) noexcept
    : outer_plugin_(current_call.plugin), outer_function_(current_call.function) {
  current_call = {plugin, function};
}

ScopedPluginCall::~ScopedPluginCall() { current_call = {outer_plugin_, outer_function_}; }

PluginCall CurrentPluginCall() noexcept { return current_call; }

void InstallTerminateHandler() {
  std::set_terminate(OnTerminate);
  static_cast<void>(std::atexit(OnExit));  // without it, exit is as silent as it was
}

}  // namespace rullama
