#include "core/plugin/call_guard.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>

#include "core/base/status.h"

namespace rullama {
namespace {

// The call that this thread is in. The terminate handler and signal handlers, which get no
// arguments, read it.
thread_local PluginCall current_call;

// PluginActivity; handlers of signals, which any thread may run, read it.
struct Activity {
  std::atomic<uint32_t> running{0};
  std::atomic<uint64_t> begun{0};
  std::atomic<uint64_t> questions{0};
  std::atomic<const char*> function{nullptr};
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);
constinit Activity activity;

std::atomic<void (*)(std::string_view)> tell_end{nullptr};

// Room for the last words of a plugin: whatever failed may have been the allocator.
using Words = std::array<char, 2048>;

void AppendException(Words& words, size_t used) noexcept {
  const auto append = [&](const char* text) {
    std::snprintf(words.data() + used, words.size() - used, "%s", text);
  };
  try {
    if (const std::exception_ptr exception = std::current_exception()) {
      std::rethrow_exception(exception);
    }
    append("no exception");
  } catch (const std::exception& e) {
    append(e.what());
  } catch (...) {
    append("an exception that is not a std::exception");
  }
}

// Plain stdio, for the same reason. No destructors and no atexit: the plugin's state is unknown.
[[noreturn]] void EndBecauseOf(const Words& words, const char* advice) {
  std::fprintf(stderr, "rullama: error: %s; %s\n", words.data(), advice);
  std::fflush(stderr);
  if (const auto tell = tell_end.load()) tell(words.data());
  std::_Exit(static_cast<int>(ErrorKind::kBackend));
}

[[noreturn]] void OnTerminate() {
  const PluginCall note = current_call;
  Words words{};
  if (note.plugin.empty()) {
    AppendException(words, 0);
    std::fprintf(stderr, "rullama: internal error: terminated: %s\n", words.data());
    std::abort();
  }
  const int size = std::snprintf(
      words.data(), words.size(),
      "plugin '%.*s' threw an exception out of %.*s: ", static_cast<int>(note.plugin.size()),
      note.plugin.data(), static_cast<int>(note.function.size()), note.function.data());
  AppendException(words, std::min(static_cast<size_t>(std::max(size, 0)), words.size() - 1));
  EndBecauseOf(words,
               "a plugin has to return an error code instead; report this to its authors "
               "[plugin.exception]");
}

// Runs in the thread that called exit, which is inside a call of a plugin only if that plugin did.
void OnExit() {
  const PluginCall note = current_call;
  if (note.plugin.empty()) return;
  Words words{};
  std::snprintf(words.data(), words.size(),
                "plugin '%.*s' ended the program inside %.*s by a call of exit",
                static_cast<int>(note.plugin.size()), note.plugin.data(),
                static_cast<int>(note.function.size()), note.function.data());
  std::fflush(nullptr);
  EndBecauseOf(words, "report this to its authors [plugin.exit]");
}

}  // namespace

ScopedPluginCall::ScopedPluginCall(std::string_view plugin, std::string_view function) noexcept
    : outer_plugin_(current_call.plugin), outer_function_(current_call.function) {
  current_call = {plugin, function};
  activity.function.store(function.data(), std::memory_order_relaxed);
  activity.begun.fetch_add(1, std::memory_order_relaxed);
  activity.running.fetch_add(1, std::memory_order_relaxed);
}

ScopedPluginCall::~ScopedPluginCall() {
  current_call = {outer_plugin_, outer_function_};
  activity.running.fetch_sub(1, std::memory_order_relaxed);
}

PluginCall CurrentPluginCall() noexcept { return current_call; }

PluginActivity CurrentPluginActivity() noexcept {
  return {activity.running.load(), activity.begun.load(), activity.questions.load(),
          activity.function.load()};
}

void NotePluginQuestion() noexcept { activity.questions.fetch_add(1, std::memory_order_relaxed); }

void InstallTerminateHandler(void (*tell)(std::string_view text)) {
  static std::once_flag once;
  tell_end.store(tell);
  std::call_once(once, [] {
    std::set_terminate(OnTerminate);
    static_cast<void>(std::atexit(OnExit));  // without it, exit is as silent as it was
  });
}

}  // namespace rullama
