#include "cli/terminal/crash_report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>
#include <system_error>

#include "cli/terminal/quiet_terminal.h"
#include "core/base/alternate_stack.h"
#include "core/base/crash_signals.h"
#include "core/base/printable.h"
#include "core/plugin/blob_cache.h"
#include "core/plugin/call_guard.h"

namespace rullama::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxNoteBytes = 2048;
constexpr size_t kMaxForeignPlugins = 8;

// Text that a handler may read while it is being changed: only its complete part is shown.
struct CrashText {
  std::array<char, kMaxNoteBytes> text = {};
  std::atomic<size_t> size{0};

  void Set(std::string_view value) {
    size.store(0);
    const size_t count = std::min(value.size(), text.size());
    std::copy_n(value.begin(), count, text.begin());
    size.store(count);
  }
  [[nodiscard]] std::string_view view() const { return {text.data(), size.load()}; }
};
static_assert(std::atomic<size_t>::is_always_lock_free);

// A plugin that is not part of the installation.
struct ForeignPlugin {
  CrashText file;
  CrashText backend;  // its name, once it is known
};

// A handler can only reach what has static storage.
struct CrashState {
  CrashText device;
  CrashText caches;
  std::array<ForeignPlugin, kMaxForeignPlugins> foreign;
  std::atomic<size_t> foreign_count{0};
  std::atomic<bool> reported{false};
  std::array<bool, kCrashSignals.size()> ours = {};  // whose handlers are installed here
};
CrashState crash;

void Tell(std::string_view text) {
  // Nothing can be done about an error here.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
}

std::string_view NameOfSignal(int signal) {
  switch (signal) {
    case SIGSEGV:
      return "SIGSEGV (invalid address)";
    case SIGBUS:
      return "SIGBUS (no memory behind an address)";
    case SIGABRT:
      return "SIGABRT (abort)";
    case SIGILL:
      return "SIGILL (unknown instruction)";
    case SIGFPE:
      return "SIGFPE (arithmetic)";
    default:
      return "a signal";
  }
}

void OnCrash(int signal, siginfo_t* info, void* context) {
  ReportCrash(signal, info, context);
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

std::span<const ForeignPlugin> ForeignPlugins() {
  return std::span(crash.foreign).first(crash.foreign_count.load());
}

// Before a plugin has said its name, calls have that of its file.
const ForeignPlugin* FindForeign(const PluginCall& call) {
  if (call.plugin.empty()) return nullptr;
  for (const ForeignPlugin& one : ForeignPlugins()) {
    if (call.plugin == one.backend.view() || call.plugin == one.file.view()) return &one;
  }
  return nullptr;
}

void AdviseAuthor(const ForeignPlugin& plugin) {
  Tell("; this plugin is not part of the installation. The op: rullama-conformance --plugin '");
  Tell(plugin.file.view());
  Tell("'; the line: this command under `gdb --args`, then `run` and `bt` [program.crash]\n");
}

// A crash on a thread of a plugin's own, or of memory that it damaged, is in no call.
void NameForeignPlugins() {
  std::string_view before = "; plugins that are not part of the installation were loaded: '";
  for (const ForeignPlugin& one : ForeignPlugins()) {
    Tell(before);
    Tell(one.file.view());
    before = "', '";
  }
  if (crash.foreign_count.load() > 0) Tell("'");
}

// The folder a driver keeps compiled kernels in: what `variable` says, or `name` in the user's
// cache.
fs::path DriverCache(const char* variable, const char* name) {
  if (const char* set = std::getenv(variable); set != nullptr && *set != '\0') return set;
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0') {
    return fs::path(cache) / name;
  }
  const char* home = std::getenv("HOME");
  return home == nullptr ? fs::path() : fs::path(home) / ".cache" / name;
}

}  // namespace

void InstallCrashHandlers() {
  // As long as the process: the main thread ends it.
  static AlternateStack* const kStack = new AlternateStack;
  static_cast<void>(kStack);
  for (size_t i = 0; i < kCrashSignals.size(); ++i) {
    struct sigaction action {};
    crash.ours[i] =
        ::sigaction(kCrashSignals[i], nullptr, &action) == 0 && action.sa_handler == SIG_DFL;
  }
  ReclaimCrashHandlers();
}

void ReclaimCrashHandlers() {
  for (size_t i = 0; i < kCrashSignals.size(); ++i) {
    if (!crash.ours[i]) continue;
    struct sigaction action {};
    action.sa_sigaction = OnCrash;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    ::sigaction(kCrashSignals[i], &action, nullptr);
  }
}

void DescribeCachesForCrash() {
  std::string text;
  for (const fs::path& folder :
       {BlobCache::DefaultDirectory(), DriverCache("POCL_CACHE_DIR", "pocl"),
        DriverCache("MESA_SHADER_CACHE_DIR", "mesa_shader_cache"),
        DriverCache("CUDA_CACHE_PATH", "nvidia")}) {
    std::error_code ignored;
    if (folder.empty() || !fs::is_directory(folder, ignored)) continue;
    text += (text.empty() ? "'" : ", '") + Printable(folder.string(), kMaxNoteBytes / 4) + "'";
  }
  crash.caches.Set(text);
}

void DescribeDeviceForCrash(std::string_view backend, std::string_view device,
                            std::string_view driver) {
  crash.device.Set(Printable(
      fmt::format("backend '{}' on '{}' (driver {})", backend, device, driver), kMaxNoteBytes));
}

void DescribePluginForCrash(std::string_view file, std::string_view backend) {
  const std::string path = Printable(file, kMaxNoteBytes);
  const std::span known = ForeignPlugins();
  const auto at = static_cast<size_t>(
      std::ranges::find(known, path, [](const ForeignPlugin& one) { return one.file.view(); }) -
      known.begin());
  if (at == kMaxForeignPlugins) return;  // a crash in it gets the advice for ours
  crash.foreign[at].backend.Set(Printable(backend, kMaxNoteBytes));
  if (at < known.size()) return;
  crash.foreign[at].file.Set(path);
  crash.foreign_count.store(at + 1);
}

void ReportCrash(int signal, const siginfo_t* info, void* context) {
  if (crash.reported.exchange(true)) return;  // another thread is faster
  RestoreTerminal();
  const PluginCall call = CurrentPluginCall();
  Tell("\nrullama: error: crashed with ");
  Tell(NameOfSignal(signal));
  if (!call.plugin.empty()) {
    Tell(" in ");
    Tell(call.function);
    Tell(" of plugin '");
    Tell(call.plugin);
    Tell("'");
  }
  Tell("; rullama " RULLAMA_VERSION);
  if (const std::string_view device = crash.device.view(); !device.empty()) {
    Tell(", ");
    Tell(device);
  }
  if (StackIsFull(signal, info, context)) Tell("; the stack is full, raise its limit (ulimit -s)");
  if (const ForeignPlugin* plugin = FindForeign(call)) return AdviseAuthor(*plugin);
  if (call.plugin.empty()) NameForeignPlugins();
  if (const std::string_view caches = crash.caches.view(); !caches.empty()) {
    Tell("; if it happens again, delete the caches of compiled kernels: ");
    Tell(caches);
  }
  Tell("; --backend cpu needs no driver. Please report it with these words [program.crash]\n");
}

}  // namespace rullama::cli
