// Converts the return code and error record of a plugin function to a Status. Neither is trusted:
// codes may be unknown, texts missing, unterminated or not UTF-8, op indices out of range.
//
// Ids: plugin.contract (an unknown code), device.invalid_argument, device.unsupported,
// device.out_of_memory (kOutOfMemory), device.lost, run.cancelled (kRuntime), device.unavailable,
// device.internal.
#pragma once

#include <rullama/abi/rullama_abi.h>

#include <string>
#include <string_view>

#include "core/base/status.h"
#include "core/ir/graph.h"

namespace rullama {

// The plugin, device and function of a call, for messages.
struct CallSite {
  std::string_view plugin;
  std::string_view device;       // empty for functions without a device
  std::string_view function;     // member of rl_plugin_v1
  const Graph* graph = nullptr;  // the graph that rl_error::op_index refers to, or null
};

// An empty error record to pass to a plugin.
rl_error EmptyError();

// The status of a call that returned `code` and filled `error`.
Status CallStatus(const CallSite& site, int32_t code, const rl_error& error);

// Returns "plugin 'x': device 'y': function", with which every message begins.
std::string Describe(const CallSite& site);

// Error plugin.contract; `what` says how the plugin broke the contract.
Error ContractError(const CallSite& site, std::string_view what);

}  // namespace rullama
