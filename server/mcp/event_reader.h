// Reads a stream of server-sent events, as it comes. Thread safety: none.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace rullama::server::mcp {

class EventReader {
 public:
  // `max_bytes`: of the data of one event, and of one line.
  explicit EventReader(size_t max_bytes) : max_bytes_(max_bytes) {}

  // The data of the events that these bytes complete; events without any are left out. Error
  // mcp.too_large (kRuntime), after which it must not be called.
  Result<std::vector<std::string>> Take(std::string_view bytes);

 private:
  void TakeLine(std::string_view line, std::vector<std::string>& events);

  size_t max_bytes_;
  std::string line_;  // what has come of it
  std::string data_;  // of the event that has begun
  bool has_data_ = false;
  bool after_return_ = false;  // a line feed that comes next belongs to the end of the last line
};

}  // namespace rullama::server::mcp
