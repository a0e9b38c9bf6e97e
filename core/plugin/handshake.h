// Asks a plugin for its table and checks the table before anything of it is used.
#pragma once

#include <rullama/abi/rullama_abi.h>

#include <string_view>

#include "core/base/status.h"

namespace rullama {

inline constexpr uint64_t kMaxTextBytes = 4096;  // of a plugin's name, version, reason...
// Size of rl_plugin_v1 in version 1.0: the least a plugin may offer.
inline constexpr uint32_t kPluginTableSizeV10 =
    offsetof(rl_plugin_v1, shutdown) + sizeof(rl_plugin_v1::shutdown);

// Calls `query` and returns a checked copy of the table: known version, at least the size of
// version 1.0, no member null, strings readable, a name of [a-z0-9_-]. What a table of a newer
// minor version has beyond ours is cut off. `origin` names the plugin in messages. Errors
// (kBackend): plugin.refused, plugin.abi, plugin.contract.
Result<rl_plugin_v1> Handshake(rl_plugin_query_fn query, std::string_view origin,
                               const rl_host_v1* host);

}  // namespace rullama
