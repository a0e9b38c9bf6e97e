#include "core/plugin/program_file.h"

#include <string>
#include <string_view>
#include <system_error>

namespace rullama {

std::filesystem::path ProgramFile(const std::filesystem::path& link) {
  constexpr std::string_view kMark = " (deleted)";
  std::string name = link.string();
  std::error_code error;
  if (!name.ends_with(kMark) || std::filesystem::exists(link, error)) return link;
  name.resize(name.size() - kMark.size());
  return name;
}

}  // namespace rullama
