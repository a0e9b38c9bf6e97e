#include "cli/chat/ffmpeg.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>
#include <utility>

#include "core/base/printable.h"

namespace rullama::cli {
namespace {

// Closed with the object.
class File {
 public:
  explicit File(int file) : file_(file) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() { Close(); }
  [[nodiscard]] int get() const { return file_; }
  void Close() {
    if (file_ >= 0) ::close(std::exchange(file_, -1));
  }

 private:
  int file_;
};

tl::unexpected<Error> CannotStart(int error) {
  return MakeError(ErrorKind::kUsage, "media.ffmpeg",
                   "the program ffmpeg cannot be started ({}), and the frames of a video are made "
                   "by it; install it, or make pictures and give them with --image",
                   std::strerror(error));
}

// Starts ffmpeg with these files as its stdout and stderr. The signals that this program blocks or
// ignores have their usual effect on it.
Result<pid_t> Start(const std::vector<std::string>& arguments, int out, int err) {
  std::vector<std::string> words = {"ffmpeg", "-nostdin", "-hide_banner", "-v", "error"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);

  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, err, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  sigset_t ignored;
  sigemptyset(&ignored);
  sigaddset(&ignored, SIGPIPE);
  sigaddset(&ignored, SIGXFSZ);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &ignored);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  pid_t child = -1;
  const int error = ::posix_spawnp(&child, "ffmpeg", &files, &attributes, pointers.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) return CannotStart(error);
  return child;
}

// All that can be read from a file, but no more than `most` bytes and some.
std::string ReadAll(int file, size_t most) {
  std::string text;
  std::array<char, 65536> block{};
  while (text.size() <= most) {
    const ssize_t size = ::read(file, block.data(), block.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) break;
    text.append(block.data(), static_cast<size_t>(size));
  }
  return text;
}

// The exit code; that of a shell for a process that a signal has ended.
int WaitFor(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string FirstLine(std::string_view text) {
  const std::string line(text.substr(0, text.find('\n')));
  return line.empty() ? "without a word" : ShownName(line);
}

}  // namespace

Result<std::string> RunFfmpeg(const std::vector<std::string>& arguments, size_t most) {
  constexpr size_t kMaxErrorBytes = 65536;  // of stderr
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) return CannotStart(errno);
  File out(ends[0]);
  File write_end(ends[1]);
  const File err(::memfd_create("stderr of ffmpeg", MFD_CLOEXEC));
  if (err.get() < 0) return CannotStart(errno);
  RL_ASSIGN_OR_RETURN(const pid_t child, Start(arguments, write_end.get(), err.get()));
  write_end.Close();
  std::string text = ReadAll(out.get(), most);
  out.Close();
  const int exit_code = WaitFor(child);
  if (text.size() > most) {
    return MakeError(ErrorKind::kUsage, "media.too_large",
                     "ffmpeg makes more than {} bytes of the video; make it shorter or smaller",
                     most);
  }
  if (exit_code == 0) return text;
  ::lseek(err.get(), 0, SEEK_SET);
  return MakeError(ErrorKind::kUsage, "media.damaged", "ffmpeg ends with {}: {}", exit_code,
                   FirstLine(ReadAll(err.get(), kMaxErrorBytes)));
}

}  // namespace rullama::cli
