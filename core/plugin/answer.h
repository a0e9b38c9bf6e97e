// What a plugin answered, as a Status. Nothing in an answer is believed: codes may be unknown,
// texts missing, unterminated or not UTF-8, op indices out of range.
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

// Who was asked for what; for messages.
struct CallSite {
  std::string_view plugin;
  std::string_view device;       // empty for functions without a device
  std::string_view function;     // member of rl_plugin_v1
  const Graph* graph = nullptr;  // whose ops rl_error::op_index counts; null if not known
};

// An error record ready to be handed to a plugin.
rl_error EmptyError();

Status CheckAnswer(const CallSite& site, int32_t code, const rl_error& error);

// "plugin 'x': device 'y': function", the beginning of every message.
std::string Describe(const CallSite& site);

// plugin.contract: the plugin broke the contract in the way `what` says.
Error ContractError(const CallSite& site, std::string_view what);

}  // namespace rullama
