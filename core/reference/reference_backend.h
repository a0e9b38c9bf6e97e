// The reference as a backend named "reference": one device on the host that runs every op in
// float64, for `rullama diff` and for trying a model where nothing else is trusted. Built into the
// program; goes through the same boundary as any plugin.
//
// Transients keep float64 from op to op and never touch the arena; inputs, outputs and states are
// in their declared types. It is the one backend that allocates while it replays, and its counters
// say so.
#pragma once

#include <rullama/abi/rullama_abi.h>

#include <cstdint>

namespace rullama {

// Has the type rl_plugin_query_fn; for Registry::RegisterBuiltIn("reference", ...). Thread-safe.
int32_t ReferencePluginQuery(const rl_host_v1* host, const rl_plugin_v1** plugin, rl_error* error);

}  // namespace rullama
