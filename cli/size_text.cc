#include "cli/size_text.h"

#include <fmt/format.h>

namespace rullama::cli {

std::string ParametersText(uint64_t parameters) {
  const auto count = static_cast<double>(parameters);
  return count >= 1e9 ? fmt::format("{:.2f} B", count / 1e9) : fmt::format("{:.2f} M", count / 1e6);
}

std::string GibibytesText(uint64_t bytes) {
  constexpr double kMebi = 1024.0 * 1024.0;
  const double mebi = static_cast<double>(bytes) / kMebi;
  return mebi >= 1024 ? fmt::format("{:.2f} GiB", mebi / 1024) : fmt::format("{:.1f} MiB", mebi);
}

}  // namespace rullama::cli
