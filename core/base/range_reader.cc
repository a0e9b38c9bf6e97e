#include "core/base/range_reader.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/base/regular_file.h"

namespace rullama {
namespace {

class SystemFile final : public RangeReader {
 public:
  explicit SystemFile(RegularFile file) : file_(std::move(file)) {}

  [[nodiscard]] uint64_t size() const override { return file_.size(); }
  [[nodiscard]] const std::string& path() const override { return file_.path(); }

  [[nodiscard]] Status Read(uint64_t offset, std::span<std::byte> to) const override {
    while (!to.empty()) {
      const ssize_t count = ::pread(file_.fd(), to.data(), to.size(), static_cast<off_t>(offset));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) {
        return MakeError(ErrorKind::kIo, "io.read", "cannot read {} bytes at {} of '{}': {}",
                         to.size(), offset, file_.path(),
                         count < 0 ? std::strerror(errno) : "the file ends before");
      }
      offset += static_cast<uint64_t>(count);
      to = to.subspan(static_cast<size_t>(count));
    }
    return OkStatus();
  }

  [[nodiscard]] Status CheckUnchanged() const override { return file_.CheckUnchanged(); }

 private:
  RegularFile file_;
};

}  // namespace

Result<std::unique_ptr<RangeReader>> OpenRangeReader(const std::filesystem::path& path) {
  RL_ASSIGN_OR_RETURN(RegularFile file, RegularFile::Open(path));
  return std::make_unique<SystemFile>(std::move(file));
}

}  // namespace rullama
