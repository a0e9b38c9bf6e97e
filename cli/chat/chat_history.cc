#include "cli/chat/chat_history.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>

#include "core/base/json_reader.h"

namespace rullama::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// Shortening a file rewrites it, so it is allowed to grow to a multiple first.
constexpr size_t kShortenFrom = 2 * ChatHistory::kMaxEntries;

std::string_view Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

}  // namespace

fs::path HistoryPath() {
  const std::string_view chosen = Variable("RULLAMA_HISTORY");
  if (chosen == "off") return {};
  if (!chosen.empty()) return fs::path(chosen);
  fs::path folder = Variable("XDG_STATE_HOME");
  if (!folder.is_absolute()) {
    const fs::path home = Variable("HOME");
    if (!home.is_absolute()) return {};
    folder = home / ".local/state";
  }
  return folder / "rullama/history";
}

std::vector<std::string> ChatHistory::Load() const {
  std::error_code ignored;
  std::vector<std::string> entries;
  if (path_.empty() || !fs::is_regular_file(path_, ignored)) return entries;
  std::ifstream file(path_, std::ios::binary);
  for (std::string line; std::getline(file, line);) {
    const auto entry = ReadJson(line);
    if (entry && entry->is_string()) entries.push_back(entry->get<std::string>());
  }
  const bool too_long = entries.size() > kShortenFrom;
  if (entries.size() > kMaxEntries) {
    entries.erase(entries.begin(), entries.end() - static_cast<ptrdiff_t>(kMaxEntries));
  }
  if (too_long) Write(entries, O_TRUNC);
  return entries;
}

void ChatHistory::Append(const std::string& message) const {
  if (path_.empty()) return;
  std::error_code ignored;
  const fs::path folder = path_.parent_path();
  if (!folder.empty() && fs::create_directories(folder, ignored)) {
    fs::permissions(folder, fs::perms::owner_all, ignored);
  }
  Write({message}, O_APPEND);
}

void ChatHistory::Write(const std::vector<std::string>& entries, int flags) const {
  std::string lines;
  for (const std::string& entry : entries) {
    lines += Json(entry).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  }
  const int fd = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flags, S_IRUSR | S_IWUSR);
  if (fd < 0) return;
  // One write, so that entries of several programs do not mix. A failed write loses only a
  // convenience.
  [[maybe_unused]] const ssize_t written = ::write(fd, lines.data(), lines.size());
  ::close(fd);
}

}  // namespace rullama::cli
