// The limits on host memory for what later requests may reuse.
#pragma once

#include <cstdint>

#include "core/base/status.h"
#include "core/config/layered_config.h"

namespace rullama {

// Memory that new allocations may take, in bytes; 0 if unknown.
uint64_t AvailableHostMemory();

// The bytes of a limit of the configuration, where `available` bytes of memory are free. A limit
// that is not configured is at most half of them; error config.range (kUsage) if more is
// configured.
Result<uint64_t> PrefixCacheLimit(const LayeredConfig& config, uint64_t available);
Result<uint64_t> MediaCacheLimit(const LayeredConfig& config, uint64_t available);

}  // namespace rullama
