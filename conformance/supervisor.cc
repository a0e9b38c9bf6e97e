#include "conformance/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "conformance/last_words.h"
#include "conformance/worker.h"
#include "core/base/json_reader.h"

namespace rullama::conformance {
namespace {

// A plugin that ends its process in each test is not started over for every one of them. One that
// hangs costs more time than one that crashes.
constexpr int kMaxWorkers = 20;
constexpr int kMaxHangs = 3;

Error WorkerError(std::string_view what) {
  return {ErrorKind::kRuntime, "conformance.worker",
          fmt::format("{}: {}", what, std::strerror(errno))};
}

void WriteLine(int file, const Event& event) {
  const std::string line =
      nlohmann::json(event).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  for (size_t at = 0; at < line.size();) {
    const ssize_t written = ::write(file, line.data() + at, line.size() - at);
    if (written < 0 && errno == EINTR) continue;
    // If nobody reads the pipe, or the plugin closed a descriptor that is not its own, there is no
    // way left to report anything.
    if (written <= 0) std::_Exit(static_cast<int>(ErrorKind::kRuntime));
    at += static_cast<size_t>(written);
  }
}

// Describes how a process ended that should have sent kDone and exited with 0; empty if it did.
// `last_words`: what it said itself, if it did (last_words.h).
std::string HowItEnded(int status, bool done, std::string_view last_words) {
  if (WIFSIGNALED(status)) {
    const int number = WTERMSIG(status);
    const char* name = ::sigabbrev_np(number);
    return (name != nullptr ? fmt::format("crashed (SIG{})", name)
                            : fmt::format("crashed (signal {})", number)) +
           std::string(last_words);
  }
  const int code = WEXITSTATUS(status);
  if (code == 0 && done) return {};
  if (!last_words.empty()) return std::string(last_words);
  return fmt::format("the process was ended with exit status {}; a plugin must not call exit",
                     code);
}

// A worker as its parent sees it.
class WorkerProcess {
 public:
  static Result<WorkerProcess> Start(const Flags& flags, std::span<const NamedTest> tests) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return tl::unexpected(WorkerError("pipe"));
    std::fflush(nullptr);  // buffered text must not be written twice
    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    if (pid < 0) return tl::unexpected(WorkerError("fork"));
    if (pid == 0) {
      // A signal that ends the parent is meant for both processes.
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) std::_Exit(1);
      ::close(ends[0]);
      SendLastWordsTo(ends[1]);
      RunWorker(flags, tests, [file = ends[1]](const Event& event) { WriteLine(file, event); });
      std::exit(0);  // with all that is to be done at exit: sanitizers report there
    }
    ::close(ends[1]);
    return WorkerProcess(pid, ends[0]);
  }

  WorkerProcess(WorkerProcess&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)), pipe_(std::exchange(other.pipe_, -1)) {}
  WorkerProcess& operator=(WorkerProcess&&) = delete;
  ~WorkerProcess() {
    if (pipe_ >= 0) ::close(pipe_);
    if (pid_ < 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

  // The next event; nothing when the process has ended or is late.
  std::optional<Event> Next(std::chrono::seconds patience) {
    const auto deadline = std::chrono::steady_clock::now() + patience;
    size_t end = 0;
    while ((end = buffer_.find('\n')) == std::string::npos) {
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
      if (!Fill(left)) return std::nullopt;
    }
    const std::string line = buffer_.substr(0, end);
    buffer_.erase(0, end + 1);
    if (line.starts_with(kLastWords)) {
      Event last;
      last.kind = Event::Kind::kLast;
      last.text = line.substr(1);
      return last;
    }
    try {
      const auto event = ReadJson(line);
      if (!event) return std::nullopt;
      return event->get<Event>();
    } catch (const nlohmann::json::exception&) {
      return std::nullopt;  // the plugin wrote into the pipe: as good as an end
    }
  }

  // Called when Next returned nothing. Describes how the process ended or that it had to be killed;
  // empty if it ended as it should.
  std::string End(bool done, std::string_view last_words, std::chrono::seconds patience) {
    if (late_) {
      ::kill(pid_, SIGKILL);
      ::waitpid(std::exchange(pid_, -1), nullptr, 0);
      return fmt::format("did not end within {} s and was stopped (--timeout)", patience.count());
    }
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return HowItEnded(status, done, last_words);
  }

  // Whether End() had to kill it.
  [[nodiscard]] bool late() const { return late_; }

 private:
  WorkerProcess(pid_t pid, int pipe) : pid_(pid), pipe_(pipe) {}

  // Reads what there is. False at the end, or when there is nothing for so long.
  bool Fill(std::chrono::milliseconds patience) {
    pollfd file{pipe_, POLLIN, 0};
    const int ready = ::poll(&file, 1, static_cast<int>(std::max<int64_t>(0, patience.count())));
    if (ready < 0) return errno == EINTR;
    late_ = ready == 0;
    if (late_) return false;
    char bytes[4096];
    const ssize_t size = ::read(pipe_, bytes, sizeof(bytes));
    if (size < 0) return errno == EINTR;
    buffer_.append(bytes, static_cast<size_t>(size));
    return size > 0;
  }

  pid_t pid_;
  int pipe_;
  std::string buffer_;
  bool late_ = false;
};

// The progress of one worker.
struct Course {
  size_t finished = 0;    // tests
  std::string unnatural;  // how it ended, if that was not its own wish
  bool hung = false;
  std::string side_effects;  // of closing the device and the plugin
  std::optional<Error> error;
};

Result<Course> RunOne(const Flags& flags, std::span<const NamedTest> tests, size_t all,
                      Report& report) {
  RL_ASSIGN_OR_RETURN(WorkerProcess worker, WorkerProcess::Start(flags, tests));
  Course course;
  bool ready = false, done = false;
  std::string last_words;
  while (const auto event = worker.Next(flags.timeout)) {
    switch (event->kind) {
      case Event::Kind::kReady:
        ready = true;
        report.Ready(*event, all);
        break;
      case Event::Kind::kBegin:
        report.Begin(tests[course.finished].name);
        break;
      case Event::Kind::kEnd:
        report.End(tests[course.finished++].name, event->verdict, event->text);
        break;
      case Event::Kind::kDone:
        done = true;
        course.side_effects = event->text;
        break;
      case Event::Kind::kLast:
        last_words = event->text;
        break;
      case Event::Kind::kError:
        course.error =
            Error{static_cast<ErrorKind>(event->error_kind), event->error_id, event->text};
        break;
    }
  }
  course.unnatural = worker.End(done || course.error, last_words, flags.timeout);
  course.hung = worker.late();
  if (!ready && !course.error) {
    course.error = Error{ErrorKind::kBackend, "conformance.crash",
                         fmt::format("plugin '{}', while it was loaded and its device opened: {}",
                                     flags.plugin, course.unnatural)};
  }
  return course;
}

}  // namespace

Status Supervise(const Flags& flags, std::span<const NamedTest> tests, Report& report) {
  size_t next = 0;
  int hangs = 0;
  for (int workers = 0; next < tests.size(); ++workers) {
    if (workers == kMaxWorkers || hangs == kMaxHangs) {
      report.Fail(fmt::format(
          "{} tests were not run, because {}; fix the failures above first", tests.size() - next,
          hangs == kMaxHangs ? fmt::format("{} have hung", hangs)
                             : fmt::format("the plugin has ended {} processes", workers)));
      break;
    }
    RL_ASSIGN_OR_RETURN(const Course course,
                        RunOne(flags, tests.subspan(next), tests.size(), report));
    next += course.finished;
    if (course.error) return tl::unexpected(*course.error);
    if (course.hung) ++hangs;
    if (!course.side_effects.empty()) {
      report.Fail(fmt::format("after the last test, when the device and the plugin were closed: {}",
                              course.side_effects));
    }
    if (course.unnatural.empty()) continue;
    if (next == tests.size()) {
      report.Fail(
          fmt::format("after the last test, when the device was closed: {}", course.unnatural));
    } else {
      report.End(tests[next].name, Verdict::kFailed, course.unnatural);
      ++next;
    }
  }
  return OkStatus();
}

}  // namespace rullama::conformance
