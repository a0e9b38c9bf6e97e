#include "engine/prefix_cache_limit.h"

#include <algorithm>
#include <fstream>
#include <string>

namespace rullama {

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
  constexpr const char* kKey = "server.prefix_cache_mib";
  const auto limit = static_cast<uint64_t>(config.values().server.prefix_cache_mib) << 20U;
  const uint64_t most = available == 0 ? limit : available / 2;
  if (limit <= most || config.origin(kKey) == Origin::kDefault) return std::min(limit, most);
  return MakeError(ErrorKind::kUsage, "config.range",
                   "{} is {}, expected at most {}, half of the memory that is free", kKey,
                   limit >> 20U, most >> 20U);
}

}  // namespace rullama
