#include "server/mcp/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/base/printable.h"

namespace rullama::server::mcp {
namespace {

// The variables of the environment that programs need: those that clients of the protocol give
// them, and those of languages, certificates and proxies.
constexpr std::array<const char*, 22> kVariables = {
    "HOME",          "LOGNAME",        "PATH",          "SHELL",           "TERM",
    "USER",          "LANG",           "LC_ALL",        "LC_CTYPE",        "TZ",
    "TMPDIR",        "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR",
    "SSL_CERT_FILE", "http_proxy",     "https_proxy",   "no_proxy",        "HTTP_PROXY",
    "HTTPS_PROXY",   "NO_PROXY"};

constexpr std::chrono::milliseconds kTimeToTerminate{1'000};
constexpr std::chrono::milliseconds kLook{10};

std::vector<std::string> EnvironmentOf(const ToolServerEntry& entry) {
  std::vector<std::string> environment;
  for (const char* name : kVariables) {
    const char* value = std::getenv(name);
    if (value != nullptr && !entry.environment.contains(name)) {
      environment.push_back(fmt::format("{}={}", name, value));
    }
  }
  for (const auto& [name, value] : entry.environment) {
    environment.push_back(fmt::format("{}={}", name, value));
  }
  return environment;
}

std::vector<char*> PointersTo(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// The two ends of a pipe, closed at the end unless they were taken.
struct Pipe {
  int reading = -1;
  int writing = -1;

  Pipe() = default;
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    for (const int end : {reading, writing}) {
      if (end >= 0) ::close(end);
    }
  }
  [[nodiscard]] bool Open() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return false;
    reading = ends[0];
    writing = ends[1];
    return true;
  }
};

int TakeNonBlocking(int& end) {
  ::fcntl(end, F_SETFL, ::fcntl(end, F_GETFL) | O_NONBLOCK);
  return std::exchange(end, -1);
}

// The settings of posix_spawn: files, signals and the process group.
class SpawnSettings {
 public:
  SpawnSettings(const Pipe& input, const Pipe& output, const Pipe& errors,
                const std::string& folder) {
    ::posix_spawn_file_actions_init(&actions_);
    ::posix_spawnattr_init(&attributes_);
    ::posix_spawn_file_actions_adddup2(&actions_, input.reading, STDIN_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions_, output.writing, STDOUT_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions_, errors.writing, STDERR_FILENO);
    // Libraries of drivers may have opened files that a new program would inherit.
    ::posix_spawn_file_actions_addclosefrom_np(&actions_, STDERR_FILENO + 1);
    if (!folder.empty()) ::posix_spawn_file_actions_addchdir_np(&actions_, folder.c_str());
    sigset_t none;
    sigset_t all;
    ::sigemptyset(&none);
    ::sigfillset(&all);
    ::posix_spawnattr_setsigmask(&attributes_, &none);
    ::posix_spawnattr_setsigdefault(&attributes_, &all);
    ::posix_spawnattr_setpgroup(&attributes_, 0);
    ::posix_spawnattr_setflags(
        &attributes_, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;
  ~SpawnSettings() {
    ::posix_spawn_file_actions_destroy(&actions_);
    ::posix_spawnattr_destroy(&attributes_);
  }
  [[nodiscard]] const posix_spawn_file_actions_t* actions() const { return &actions_; }
  [[nodiscard]] const posix_spawnattr_t* attributes() const { return &attributes_; }

 private:
  posix_spawn_file_actions_t actions_{};
  posix_spawnattr_t attributes_{};
};

std::string EndText(int status) {
  if (WIFSIGNALED(status)) return fmt::format("was ended by signal {}", WTERMSIG(status));
  return fmt::format("ended with exit code {}", WEXITSTATUS(status));
}

}  // namespace

Result<std::unique_ptr<ChildProcess>> ChildProcess::Start(const ToolServerEntry& entry) {
  const auto failed = [&entry](int code) {
    return MakeError(ErrorKind::kRuntime, "mcp.start", "'{}' cannot be started{}: {}",
                     ShownName(entry.command),
                     entry.folder.empty() ? "" : fmt::format(" in '{}'", ShownName(entry.folder)),
                     std::strerror(code));
  };
  Pipe input;
  Pipe output;
  Pipe errors;
  if (!input.Open() || !output.Open() || !errors.Open()) return failed(errno);
  std::vector<std::string> words = {entry.command};
  words.insert(words.end(), entry.arguments.begin(), entry.arguments.end());
  std::vector<std::string> environment = EnvironmentOf(entry);
  const SpawnSettings settings(input, output, errors, entry.folder);
  pid_t process = 0;
  const int code =
      ::posix_spawnp(&process, entry.command.c_str(), settings.actions(), settings.attributes(),
                     PointersTo(words).data(), PointersTo(environment).data());
  if (code != 0) return failed(code);
  return std::unique_ptr<ChildProcess>(new ChildProcess(process, TakeNonBlocking(input.writing),
                                                        TakeNonBlocking(output.reading),
                                                        TakeNonBlocking(errors.reading)));
}

ChildProcess::~ChildProcess() {
  CloseInput();
  End(std::chrono::milliseconds(0));
  ::close(output_);
  ::close(errors_);
}

void ChildProcess::CloseInput() {
  if (input_ >= 0) ::close(std::exchange(input_, -1));
}

bool ChildProcess::HasEndedWithin(std::chrono::milliseconds limit) const {
  const Clock::time_point end = Clock::now() + limit;
  while (true) {
    siginfo_t state{};
    const int code =
        ::waitid(P_PID, static_cast<id_t>(process_), &state, WEXITED | WNOHANG | WNOWAIT);
    if (code == 0 && state.si_pid == process_) return true;
    if (code != 0 && errno == ECHILD) return true;  // somebody has waited for it already
    if (Clock::now() >= end) return false;
    std::this_thread::sleep_for(kLook);
  }
}

std::string ChildProcess::End(std::chrono::milliseconds patience) {
  const std::lock_guard lock(mutex_);
  if (ended_) return *ended_;
  if (!HasEndedWithin(patience)) {
    ::kill(-process_, SIGTERM);
    ::kill(process_, SIGTERM);  // it may have left its group
    if (!HasEndedWithin(kTimeToTerminate)) ::kill(process_, SIGKILL);
  }
  // Programs that it has started are in its group, also after its own end.
  ::kill(-process_, SIGKILL);
  int status = 0;
  pid_t waited = ::waitpid(process_, &status, 0);
  while (waited < 0 && errno == EINTR) waited = ::waitpid(process_, &status, 0);
  ended_ = waited < 0 ? "ended" : EndText(status);
  return *ended_;
}

}  // namespace rullama::server::mcp
