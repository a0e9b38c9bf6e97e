// The reference interpreter as a backend named "reference": one host device that runs every op in
// float64. Used by `rullama diff` and for checking other backends. It is built into the program and
// uses the same ABI as any plugin.
//
// Transients stay in float64 and are not stored in the arena; inputs, outputs and states have their
// declared types. Unlike other backends it allocates in every execution, and its counters report
// that.
#pragma once

#include <rullama/abi/rullama_abi.h>

#include <cstdint>

namespace rullama {

// Has the type rl_plugin_query_fn; for Registry::RegisterBuiltIn("reference", ...). Thread-safe.
int32_t ReferencePluginQuery(const rl_host_v1* host, const rl_plugin_v1** plugin, rl_error* error);

}  // namespace rullama
