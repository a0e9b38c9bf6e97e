// The history of conversations: a file with one JSON string for each message, the oldest first.
// Programs that run at the same time may all add to it. Failing to read or write it is not an
// error: a conversation does not depend on it. Thread safety: none.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace rullama::cli {

// $RULLAMA_HISTORY ("off" means none), else rullama/history in $XDG_STATE_HOME or ~/.local/state;
// empty if there is none. As the XDG specification asks, folders that are not absolute do not
// count.
std::filesystem::path HistoryPath();

class ChatHistory {
 public:
  static constexpr size_t kMaxEntries = 1000;

  // An empty path keeps nothing.
  explicit ChatHistory(std::filesystem::path path) : path_(std::move(path)) {}

  // The last kMaxEntries messages. A file that has become much longer is shortened to them.
  [[nodiscard]] std::vector<std::string> Load() const;
  // Creates the file (mode 0600) and its folder (0700) if they do not exist.
  void Append(const std::string& message) const;

 private:
  void Write(const std::vector<std::string>& entries, int flags) const;

  std::filesystem::path path_;
};

}  // namespace rullama::cli
