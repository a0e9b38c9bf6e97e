#include "core/base/size_text.h"

#include <fmt/format.h>

namespace rullama {

std::string SizeText(uint64_t bytes) {
  const double kibi = static_cast<double>(bytes) / 1024;
  if (bytes < uint64_t{1} << 20) return fmt::format("{:.1f} KiB", kibi);
  if (bytes < uint64_t{1} << 30) return fmt::format("{:.1f} MiB", kibi / 1024);
  const double gibi = kibi / (1024 * 1024);
  if (bytes < uint64_t{1} << 40) return fmt::format("{:.2f} GiB", gibi);
  if (bytes < uint64_t{1} << 50) return fmt::format("{:.1f} TiB", gibi / 1024);
  return fmt::format("{:.1f} PiB", gibi / (1024 * 1024));
}

std::string ParametersText(uint64_t parameters) {
  const auto count = static_cast<double>(parameters);
  return count >= 1e9 ? fmt::format("{:.2f} B", count / 1e9) : fmt::format("{:.2f} M", count / 1e6);
}

}  // namespace rullama
