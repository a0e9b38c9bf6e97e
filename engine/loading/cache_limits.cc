#include "engine/loading/cache_limits.h"

#include <algorithm>
#include <fstream>
#include <string>
#include <string_view>

namespace rullama {
namespace {

Result<uint64_t> LimitOf(const LayeredConfig& config, std::string_view key, int64_t mib,
                         uint64_t available) {
  const auto limit = static_cast<uint64_t>(mib) << 20U;
  const uint64_t most = available == 0 ? limit : available / 2;
  if (limit <= most || config.origin(key) == Origin::kDefault) return std::min(limit, most);
  return MakeError(ErrorKind::kUsage, "config.range",
                   "{} is {}, expected at most {}, half of the memory that is free", key,
                   limit >> 20U, most >> 20U);
}

}  // namespace

uint64_t AvailableHostMemory() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  uint64_t kib = 0;
  while (file >> name >> kib) {
    if (name == "MemAvailable:") return kib * 1024;
    file.ignore(64, '\n');
  }
  return 0;
}

Result<uint64_t> PrefixCacheLimit(const LayeredConfig& config, uint64_t available) {
  return LimitOf(config, "server.prefix_cache_mib", config.values().server.prefix_cache_mib,
                 available);
}

Result<uint64_t> MediaCacheLimit(const LayeredConfig& config, uint64_t available) {
  return LimitOf(config, "server.media_cache_mib", config.values().server.media_cache_mib,
                 available);
}

}  // namespace rullama
