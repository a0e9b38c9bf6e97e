// The folder for files of slots.
#pragma once

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/status.h"

namespace rullama::server {

// Whether a file of a slot may have this name: 1 to 128 letters, digits, dots, dashes and
// underscores of ASCII, the first of which is not a dot.
bool IsSlotFileName(std::string_view name);

// Error server.slot_folder unless there is such a folder, and files can be made in it.
Status CheckSlotFolder(const std::string& path);

// Thread safety: all member functions from any thread.
class SlotFolder {
 public:
  // `max_bytes`: of all files in the folder.
  SlotFolder(std::filesystem::path path, uint64_t max_bytes)
      : path_(std::move(path)), max_bytes_(max_bytes) {}

  [[nodiscard]] std::filesystem::path PathOf(std::string_view name) const { return path_ / name; }

  // The writing of a file: others wait for its end.
  class Writing {
   public:
    Writing(SlotFolder& folder, std::string_view name)
        : lock_(folder.writing_), room_(folder.RoomFor(name)) {}
    // How large the file may be.
    [[nodiscard]] uint64_t room() const { return room_; }

   private:
    std::unique_lock<std::mutex> lock_;
    uint64_t room_;
  };

 private:
  // What the other files leave of the limit.
  [[nodiscard]] uint64_t RoomFor(std::string_view name) const;

  const std::filesystem::path path_;
  const uint64_t max_bytes_;
  std::mutex writing_;
};

}  // namespace rullama::server
