// The times of tiles of products on matrix units (TileTimes), measured on the user's own device and
// kept by the host under the name of its driver and device. Without them kMeasuredTileTimes hold.
// Plans follow from the times alone, so that runs with the same kept times give the same bytes.
//
// Thread safety: none; used under the host's lock on the device.
#pragma once

#include <vector>

#include "backends/gpu/block_memory.h"
#include "backends/gpu/driver.h"
#include "backends/gpu/kernel_cache.h"

namespace rullama::gpu {

// The times that were kept for this device and driver; none if there are none, or damaged ones.
std::vector<TileTimes> KeptTileTimes(const Driver& driver);

// Measures the tiles of Preferences::tile_times and has the host keep their times: a second of
// products of zeros. Errors: RL_INVALID_ARGUMENT if the device has no matrix units or does not tell
// times, or if nothing is kept for it; RL_INTERNAL if the host cannot; those of the driver.
void TuneTiles(Driver& driver, BlockMemory& blocks, KernelCache& kernels, const Target& target);

}  // namespace rullama::gpu
