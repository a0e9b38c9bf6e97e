#include "server/slot_folder.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <system_error>

#include "core/base/printable.h"

namespace rullama::server {
namespace {

constexpr size_t kMaxNameBytes = 128;

bool IsNameByte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.';
}

}  // namespace

bool IsSlotFileName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes && name.front() != '.' &&
         std::ranges::all_of(name, IsNameByte);
}

Status CheckSlotFolder(const std::string& path) {
  std::error_code code;
  const bool folder = std::filesystem::is_directory(path, code);
  if (folder && ::access(path.c_str(), R_OK | W_OK | X_OK) == 0) return OkStatus();
  const int error = errno;
  return MakeError(
      ErrorKind::kIo, "server.slot_folder",
      "server.slot_save_path '{}' is not a folder that files can be made in ({}); make "
      "it, or name another",
      ShownName(path),
      folder ? std::strerror(error)
      : code ? code.message()
             : "not a folder");
}

uint64_t SlotFolder::RoomFor(std::string_view name) const {
  uint64_t used = 0;
  std::error_code code;
  for (std::filesystem::directory_iterator file(path_, code), end; !code && file != end;
       file.increment(code)) {
    std::error_code gone;
    if (!file->is_regular_file(gone) || file->path().filename() == name) continue;
    const auto bytes = file->file_size(gone);
    if (!gone) used += bytes;
  }
  return max_bytes_ - std::min(max_bytes_, used);
}

}  // namespace rullama::server
