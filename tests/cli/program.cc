#include "tests/cli/program.h"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <utility>

extern char** environ;

namespace rullama::cli_test {
namespace {

namespace fs = std::filesystem;

constexpr auto kPatience = std::chrono::minutes(2);
constexpr auto kPollInterval = std::chrono::milliseconds(5);

// posix_spawn with its file actions, released when done.
class Spawner {
 public:
  Spawner() { posix_spawn_file_actions_init(&actions_); }
  ~Spawner() { posix_spawn_file_actions_destroy(&actions_); }
  Spawner(const Spawner&) = delete;
  Spawner& operator=(const Spawner&) = delete;

  void Open(int fd, const std::string& path, int flags) {
    posix_spawn_file_actions_addopen(&actions_, fd, path.c_str(), flags, 0600);
  }
  void Duplicate(int from, int to) { posix_spawn_file_actions_adddup2(&actions_, from, to); }
  void Close(int fd) { posix_spawn_file_actions_addclose(&actions_, fd); }

  // The program leads a session of its own; the first terminal it opens becomes its own.
  void NewSession() { new_session_ = true; }

  pid_t Start(const std::vector<std::string>& arguments, const std::vector<std::string>& extra,
              const std::string& limits = "") {
    std::vector<std::string> words;
    if (!limits.empty()) words = {"/bin/sh", "-c", "ulimit " + limits + " && exec \"$0\" \"$@\""};
    words.emplace_back(RULLAMA_PROGRAM);
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    std::vector<std::string> settings = extra;
    std::vector<char*> environment;
    for (std::string& setting : settings) environment.push_back(setting.data());
    for (char** entry = environ; *entry != nullptr; ++entry) {
      // The tester's own settings must not influence the tests.
      const bool decides =
          std::strncmp(*entry, "RULLAMA_", 8) == 0 || std::strncmp(*entry, "NO_COLOR=", 9) == 0 ||
          std::strncmp(*entry, "TERM=", 5) == 0 || std::strncmp(*entry, "XDG_STATE_HOME=", 15) == 0;
      if (!decides) environment.push_back(*entry);
    }
    // Histories of conversations are written there.
    std::string state = "XDG_STATE_HOME=" + TemporaryDirectory().string();
    environment.push_back(state.data());
    environment.push_back(nullptr);
    pid_t pid = -1;
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    // Signals that end programs do so even where the tester's own are ignored (nohup).
    sigset_t ending;
    sigemptyset(&ending);
    for (const int signal : {SIGHUP, SIGINT, SIGTERM}) sigaddset(&ending, signal);
    posix_spawnattr_setsigdefault(&attributes, &ending);
    posix_spawnattr_setflags(
        &attributes,
        static_cast<short>(POSIX_SPAWN_SETSIGDEF | (new_session_ ? POSIX_SPAWN_SETSID : 0)));
    const int error =
        posix_spawn(&pid, argv[0], &actions_, &attributes, argv.data(), environment.data());
    posix_spawnattr_destroy(&attributes);
    if (error != 0) throw std::runtime_error(std::string("posix_spawn: ") + std::strerror(error));
    return pid;
  }

 private:
  posix_spawn_file_actions_t actions_;
  bool new_session_ = false;
};

int WaitFor(pid_t pid, rusage* usage = nullptr) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  for (;;) {
    int status = 0;
    const pid_t done = ::wait4(pid, &status, WNOHANG, usage);
    if (done == pid) return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (done < 0) return -1;
    if (std::chrono::steady_clock::now() > deadline) ::kill(pid, SIGKILL);
    std::this_thread::sleep_for(kPollInterval);
  }
}

struct ScratchDirectory {
  fs::path path;
  ScratchDirectory() {
    std::string pattern = (fs::temp_directory_path() / "rullama_cli_XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path = pattern;
  }
  ~ScratchDirectory() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

}  // namespace

fs::path TemporaryDirectory() {
  static const ScratchDirectory directory;
  return directory.path;
}

fs::path TemporaryFile(const std::string& name, const std::string& content) {
  const fs::path path = TemporaryDirectory() / name;
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

std::string ReadFile(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

std::string TinyModel() { return RULLAMA_SOURCE_DIR "/tests/data/tiny-e2b-Q4_K_M.gguf"; }

std::string TinyDiffusionModel() {
  return RULLAMA_SOURCE_DIR "/tests/data/tiny-diffusion-Q4_K_M.gguf";
}
std::string TinyMoeModel() { return RULLAMA_SOURCE_DIR "/tests/data/tiny-moe-Q4_K_M.gguf"; }

RunResult RunOnTerminal(const std::vector<std::string>& arguments, int columns, int rows) {
  winsize size{};
  size.ws_col = static_cast<unsigned short>(columns);
  size.ws_row = static_cast<unsigned short>(rows);
  int outside = -1;
  int inside = -1;
  if (::openpty(&outside, &inside, nullptr, nullptr, &size) != 0) {
    throw std::runtime_error(std::string("openpty: ") + std::strerror(errno) +
                             "; these tests need a pseudo-terminal (devpts mounted on /dev/pts)");
  }
  const std::string err = TemporaryFile("stderr", "").string();
  Spawner spawner;
  spawner.Open(STDIN_FILENO, "/dev/null", O_RDONLY);
  spawner.Duplicate(inside, STDOUT_FILENO);
  spawner.Open(STDERR_FILENO, err, O_WRONLY | O_TRUNC);
  const pid_t pid = spawner.Start(arguments, {"TERM=xterm"});
  ::close(inside);
  RunResult result;
  char buffer[4096];
  // Reading fails with EIO once nobody has the terminal open any more.
  for (ssize_t count; (count = ::read(outside, buffer, sizeof(buffer))) > 0;) {
    result.out.append(buffer, static_cast<size_t>(count));
  }
  ::close(outside);
  result.exit_code = WaitFor(pid);
  result.err = ReadFile(err);
  return result;
}

ProgramOnTerminal::ProgramOnTerminal(const std::vector<std::string>& arguments,
                                     const TerminalOptions& options)
    : screen_(options.columns, options.rows) {
  winsize size{};
  size.ws_col = static_cast<unsigned short>(options.columns);
  size.ws_row = static_cast<unsigned short>(options.rows);
  int inside = -1;
  char name[64];
  if (::openpty(&outside_, &inside, name, nullptr, &size) != 0) {
    throw std::runtime_error(std::string("openpty: ") + std::strerror(errno) +
                             "; these tests need a pseudo-terminal (devpts mounted on /dev/pts)");
  }
  ::fcntl(outside_, F_SETFD, FD_CLOEXEC);
  Spawner spawner;
  spawner.NewSession();
  spawner.Open(STDIN_FILENO, name, O_RDWR);
  spawner.Duplicate(STDIN_FILENO, STDOUT_FILENO);
  spawner.Duplicate(STDIN_FILENO, STDERR_FILENO);
  spawner.Close(inside);
  std::vector<std::string> environment = options.environment;
  environment.push_back("TERM=" + options.term);
  pid_ = spawner.Start(arguments, environment);
  ::close(inside);
}

ProgramOnTerminal::~ProgramOnTerminal() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    WaitFor(pid_);
  }
  ::close(outside_);
}

void ProgramOnTerminal::Type(std::string_view bytes) const {
  if (::write(outside_, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) {
    throw std::runtime_error("the terminal takes no more input");
  }
}

void ProgramOnTerminal::Resize(int columns, int rows) const {
  winsize size{};
  size.ws_col = static_cast<unsigned short>(columns);
  size.ws_row = static_cast<unsigned short>(rows);
  if (::ioctl(outside_, TIOCSWINSZ, &size) != 0) {
    throw std::runtime_error("the terminal takes no other size");
  }
}

bool ProgramOnTerminal::Receive() {
  constexpr int kMoment = 50;  // ms
  pollfd ready{outside_, POLLIN, 0};
  if (::poll(&ready, 1, kMoment) == 0) return true;
  char buffer[4096];
  const ssize_t count = ::read(outside_, buffer, sizeof(buffer));
  if (count <= 0) return false;  // EIO once nobody has the terminal open any more
  received_.append(buffer, static_cast<size_t>(count));
  screen_.Feed(std::string_view(buffer, static_cast<size_t>(count)));
  return true;
}

void ProgramOnTerminal::WaitUntil(const std::function<bool()>& fulfilled,
                                  std::string_view expected) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  bool open = true;
  while (!fulfilled()) {
    if (!open || std::chrono::steady_clock::now() > deadline) {
      throw std::runtime_error("expected '" + std::string(expected) +
                               "', but the terminal shows:\n" + screen_.Text());
    }
    open = Receive();
  }
}

void ProgramOnTerminal::Expect(std::string_view text, int times) {
  const auto shown = [&] {
    int found = 0;
    const std::string screen = screen_.Text();
    for (size_t at = 0; (at = screen.find(text, at)) != std::string::npos; ++at) ++found;
    return found >= times;
  };
  WaitUntil(shown, text);
}

void ProgramOnTerminal::ExpectBytes(std::string_view bytes) {
  WaitUntil([&] { return received_.find(bytes) != std::string::npos; }, bytes);
}

int ProgramOnTerminal::Wait() {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (Receive() && std::chrono::steady_clock::now() < deadline) {
  }
  const int code = WaitFor(pid_);
  pid_ = -1;
  return code;
}

RunOptions AskingDrivers() {
  RunOptions options;
  // intercept_tls_get_addr: as in the test preset `asan`.
  options.environment = {"ASAN_OPTIONS=fast_unwind_on_malloc=0:intercept_tls_get_addr=0",
                         "LSAN_OPTIONS=print_suppressions=0:suppressions=" RULLAMA_SOURCE_DIR
                         "/tests/cli/driver_leaks.supp"};
  return options;
}

RunResult RunRullama(const std::vector<std::string>& arguments, const RunOptions& options) {
  const std::string out = TemporaryFile("stdout", "").string();
  const std::string err = TemporaryFile("stderr", "").string();
  Spawner spawner;
  if (options.close_stdin) {
    spawner.Close(STDIN_FILENO);
  } else {
    spawner.Open(STDIN_FILENO,
                 options.input ? TemporaryFile("stdin", *options.input).string() : "/dev/null",
                 O_RDONLY);
  }
  if (options.close_stdout) {
    spawner.Close(STDOUT_FILENO);
  } else {
    spawner.Open(STDOUT_FILENO, options.stdout_path.empty() ? out : options.stdout_path,
                 O_WRONLY | O_TRUNC);
  }
  spawner.Open(STDERR_FILENO, err, O_WRONLY | O_TRUNC);
  RunResult result;
  rusage usage{};
  result.exit_code = WaitFor(spawner.Start(arguments, options.environment, options.limits), &usage);
  result.max_resident_bytes = int64_t{usage.ru_maxrss} * 1024;
  result.out = ReadFile(out);
  result.err = ReadFile(err);
  return result;
}

RunningProgram::RunningProgram(const std::vector<std::string>& arguments,
                               const RunOptions& options) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe2 failed");
  Spawner spawner;
  spawner.Open(STDIN_FILENO, "/dev/null", O_RDONLY);
  spawner.Duplicate(ends[1], STDOUT_FILENO);
  if (options.join_streams) {
    spawner.Duplicate(ends[1], STDERR_FILENO);
  } else {
    spawner.Open(STDERR_FILENO, "/dev/null", O_WRONLY);
  }
  pid_ = spawner.Start(arguments, options.environment, options.limits);
  ::close(ends[1]);
  read_end_ = ends[0];
}

RunningProgram::~RunningProgram() {
  CloseStdout();
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    WaitFor(pid_);
  }
}

std::string RunningProgram::ReadSome() {
  if (!unread_.empty()) return std::exchange(unread_, {});
  constexpr auto kPatienceMs = std::chrono::milliseconds(kPatience).count();
  pollfd ready{read_end_, POLLIN, 0};
  if (::poll(&ready, 1, kPatienceMs) == 0) {
    throw std::runtime_error("the program has written nothing for two minutes");
  }
  char buffer[4096];
  const ssize_t count = ::read(read_end_, buffer, sizeof(buffer));
  return count > 0 ? std::string(buffer, static_cast<size_t>(count)) : std::string();
}

std::string RunningProgram::ReadUntil(std::string_view mark) {
  std::string text;
  size_t at = std::string::npos;
  std::string why = "the program has ended";
  while ((at = text.find(mark)) == std::string::npos) {
    std::string more;
    try {
      more = ReadSome();
    } catch (const std::runtime_error& silence) {
      why = silence.what();
    }
    if (more.empty()) {
      throw std::runtime_error("expected '" + std::string(mark) + "', but " + why + " after:\n" +
                               text);
    }
    text += more;
  }
  unread_ = text.substr(at + mark.size());
  text.resize(at + mark.size());
  return text;
}

void RunningProgram::CloseStdout() {
  if (read_end_ >= 0) ::close(read_end_);
  read_end_ = -1;
}

void RunningProgram::Signal(int signal) const { ::kill(pid_, signal); }

int RunningProgram::Wait() {
  const int code = WaitFor(pid_);
  pid_ = -1;
  return code;
}

}  // namespace rullama::cli_test
