// Parses the values of backend options: switches and byte counts.
#pragma once

#include <rullama/sdk/backend.h>

#include <charconv>
#include <cstdint>
#include <string>

namespace rullama::gpu {

// Errors: RL_INVALID_ARGUMENT unless the value is on or off.
inline bool ParseSwitch(const sdk::Option& option) {
  if (option.value == "on") return true;
  if (option.value == "off") return false;
  throw sdk::Error(RL_INVALID_ARGUMENT,
                   "option " + option.key + " is '" + option.value + "', expected on or off");
}

// Parses a switch for a feature that only some devices have. Errors: the same, and
// RL_INVALID_ARGUMENT if the switch is on but the feature is not `available`.
inline bool ParseSwitch(const sdk::Option& option, bool available, const char* what) {
  const bool on = ParseSwitch(option);
  if (on && !available) {
    throw sdk::Error(RL_INVALID_ARGUMENT,
                     "option " + option.key + " is 'on', but the device has no " + what);
  }
  return on;
}

// Errors: RL_INVALID_ARGUMENT unless the value is a whole number from `least` to `most`.
inline uint64_t ParseBytes(const sdk::Option& option, uint64_t least, uint64_t most) {
  uint64_t bytes = 0;
  const char* end = option.value.data() + option.value.size();
  const auto [stop, error] = std::from_chars(option.value.data(), end, bytes);
  if (error == std::errc() && stop == end && bytes >= least && bytes <= most) return bytes;
  throw sdk::Error(RL_INVALID_ARGUMENT, "option " + option.key + " is '" +
                                            std::string(option.value) + "', expected bytes from " +
                                            std::to_string(least) + " to " + std::to_string(most));
}

}  // namespace rullama::gpu
