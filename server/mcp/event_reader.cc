#include "server/mcp/event_reader.h"

#include <utility>

namespace rullama::server::mcp {

void EventReader::TakeLine(std::string_view line, std::vector<std::string>& events) {
  if (line.empty()) {
    if (std::exchange(has_data_, false) && !data_.empty()) events.push_back(std::move(data_));
    data_.clear();
    return;
  }
  constexpr std::string_view kData = "data";
  const size_t colon = line.find(':');
  if (line.substr(0, colon) != kData) return;
  std::string_view value = colon == line.npos ? std::string_view() : line.substr(colon + 1);
  if (value.starts_with(' ')) value.remove_prefix(1);
  if (std::exchange(has_data_, true)) data_ += '\n';
  data_ += value;
}

Result<std::vector<std::string>> EventReader::Take(std::string_view bytes) {
  std::vector<std::string> events;
  while (!bytes.empty()) {
    if (std::exchange(after_return_, false) && bytes.front() == '\n') {
      bytes.remove_prefix(1);
      continue;
    }
    const size_t end = bytes.find_first_of("\r\n");
    line_ += bytes.substr(0, end);
    if (line_.size() + data_.size() > max_bytes_) {
      return MakeError(ErrorKind::kRuntime, "mcp.too_large", "an event has more than {} bytes",
                       max_bytes_);
    }
    if (end == bytes.npos) break;
    after_return_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    TakeLine(std::exchange(line_, {}), events);
  }
  return events;
}

}  // namespace rullama::server::mcp
