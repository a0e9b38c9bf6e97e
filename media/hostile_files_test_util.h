// Files of pictures and sounds that are hostile, damaged or at a limit, and the expected result of
// each: one table for the tests of the program and of the server.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/media_kind.h"

namespace rullama {

struct HostileFile {
  std::string name;
  MediaKind kind = MediaKind::kPicture;
  std::string bytes;
  std::string_view error;  // its id; empty: the file is taken
};

std::vector<HostileFile> HostileFiles();

}  // namespace rullama
