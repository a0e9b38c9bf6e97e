// The error of a device that is out of memory.
#pragma once

#include <rullama/sdk/backend.h>

#include <cstdint>
#include <string>

namespace rullama::gpu {

inline std::string SizeText(uint64_t bytes) {
  if (bytes < uint64_t{1} << 20) return std::to_string(bytes) + " bytes";
  const bool small = bytes < uint64_t{1} << 30;
  const uint64_t tenths = bytes / ((uint64_t{1} << (small ? 20 : 30)) / 10);
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) +
         (small ? " MiB" : " GiB");
}

// `total`, `free`: 0 if the device does not report it. `why`: the driver's message, or empty.
inline sdk::Error NoRoom(uint64_t bytes, uint64_t total, uint64_t free, const std::string& why) {
  std::string text = "no room for " + SizeText(bytes) + " more on the device";
  if (total > 0) text += ", which has " + SizeText(total);
  if (free > 0) text += ", " + SizeText(free) + " of it free";
  return sdk::Error(RL_OUT_OF_MEMORY, text + (why.empty() ? "" : " (" + why + ")") +
                                          "; a smaller quantisation or context needs less");
}

}  // namespace rullama::gpu
