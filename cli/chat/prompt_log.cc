#include "cli/chat/prompt_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "core/base/printable.h"

namespace rullama::cli {
namespace {

constexpr mode_t kOwnerOnly = S_IRUSR | S_IWUSR;

tl::unexpected<Error> FileError(std::string_view id, const std::string& path, int error) {
  return MakeError(ErrorKind::kIo, id, "the log of prompts '{}': {}", ShownName(path),
                   std::generic_category().message(error));
}

}  // namespace

Result<std::unique_ptr<PromptLog>> PromptLog::Open(const std::string& path) {
  const int file =
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, kOwnerOnly);
  if (file < 0) return FileError("io.open", path, errno);
  std::unique_ptr<PromptLog> log(new PromptLog(file, path));
  if (::fchmod(file, kOwnerOnly) != 0) return FileError("io.open", path, errno);
  return log;
}

PromptLog::~PromptLog() { ::close(file_); }

Status PromptLog::Write(std::string_view line) {
  const std::string text = std::string(line) + "\n";
  const std::lock_guard lock(mutex_);
  for (size_t done = 0; done < text.size();) {
    const ssize_t written = ::write(file_, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return FileError("io.write", path_, errno);
    done += static_cast<size_t>(written);
  }
  return OkStatus();
}

}  // namespace rullama::cli
