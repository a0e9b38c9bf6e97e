// Options that are on or off.
#pragma once

#include <rullama/sdk/backend.h>

namespace rullama::gpu {

// Errors: RL_INVALID_ARGUMENT unless the value is on or off.
inline bool ParseSwitch(const sdk::Option& option) {
  if (option.value == "on") return true;
  if (option.value == "off") return false;
  throw sdk::Error(RL_INVALID_ARGUMENT,
                   "option " + option.key + " is '" + option.value + "', expected on or off");
}

// A switch for what only some devices have. Errors: the same if it is on and `available` is not.
inline bool ParseSwitch(const sdk::Option& option, bool available, const char* what) {
  const bool on = ParseSwitch(option);
  if (on && !available) {
    throw sdk::Error(RL_INVALID_ARGUMENT,
                     "option " + option.key + " is 'on', but the device has no " + what);
  }
  return on;
}

}  // namespace rullama::gpu
