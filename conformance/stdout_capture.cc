#include "conformance/stdout_capture.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>

namespace rullama::conformance {

Result<StdoutCapture> StdoutCapture::Begin() {
  const int file = ::memfd_create("stdout", MFD_CLOEXEC);
  if (file < 0 || ::dup2(file, STDOUT_FILENO) < 0) {
    return MakeError(ErrorKind::kIo, "conformance.capture", "cannot redirect stdout: {}",
                     std::strerror(errno));
  }
  return StdoutCapture(file);
}

std::string StdoutCapture::Take() {
  constexpr size_t kMaxBytes = 200;
  std::cout.flush();
  std::fflush(stdout);
  std::string text(kMaxBytes, '\0');
  const ssize_t size = ::pread(file_, text.data(), text.size(), 0);
  text.resize(size > 0 ? static_cast<size_t>(size) : 0);
  // The offset is shared with the stream, which continues at the beginning.
  if (!text.empty() && ::ftruncate(file_, 0) == 0) ::lseek(file_, 0, SEEK_SET);
  return text;
}

}  // namespace rullama::conformance
