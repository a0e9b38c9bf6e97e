// Calls into plugins. A plugin must not throw across the boundary: an exception would unwind frames
// of foreign code, so the only safe reaction is to end the process with a message that names the
// plugin. CallPlugin notes the plugin and function, then calls through a noexcept frame: an
// exception ends in std::terminate, whose handler prints the note.
//
// Thread safety: the note is per thread; the counters of PluginActivity are of the process.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

namespace rullama {

// Notes the call in progress on this thread, for its lifetime. `plugin` must outlive it, `function`
// is a literal. Nests.
class ScopedPluginCall {
 public:
  ScopedPluginCall(std::string_view plugin, std::string_view function) noexcept;
  ScopedPluginCall(const ScopedPluginCall&) = delete;
  ScopedPluginCall& operator=(const ScopedPluginCall&) = delete;
  ~ScopedPluginCall();

 private:
  std::string_view outer_plugin_;
  std::string_view outer_function_;
};

// The call in progress on this thread; empty texts if there is none. Async-signal-safe.
struct PluginCall {
  std::string_view plugin;
  std::string_view function;
};
PluginCall CurrentPluginCall() noexcept;

// What plugins did so far in this process, for a handler of signals that has to tell a slow plugin
// from one that hangs: one that hangs is in a call, begins none and does not ask.
// Async-signal-safe.
struct PluginActivity {
  uint32_t running = 0;            // calls in progress, of all threads
  uint64_t begun = 0;              // calls
  uint64_t questions = 0;          // whether to stop (rl_host_v1::cancelled)
  const char* function = nullptr;  // of the call that began last, or null
};
PluginActivity CurrentPluginActivity() noexcept;
// Counts a question of a plugin whether to stop.
void NotePluginQuestion() noexcept;

// Call this once at the start of main. If an exception leaves a plugin, or a plugin calls exit, the
// handler prints the plugin and the function (and the exception's text) to stderr and exits with
// ErrorKind::kBackend; any other termination is our own bug and aborts. `tell`, if there is one,
// gets the same words of a plugin's fault; a later call only replaces it.
void InstallTerminateHandler(void (*tell)(std::string_view text) = nullptr);

namespace internal {
// The noexcept frame. It holds no object with a destructor, which could run and erase the note
// before std::terminate is reached.
template <typename Function, typename... Args>
auto InvokeNoexcept(Function function, Args... args) noexcept {
  return function(args...);
}
}  // namespace internal

// Calls function(args...), a function of a plugin's table.
template <typename Function, typename... Args>
auto CallPlugin(std::string_view plugin, std::string_view name, Function function, Args... args) {
  const ScopedPluginCall call(plugin, name);
  return internal::InvokeNoexcept(function, args...);
}

}  // namespace rullama
