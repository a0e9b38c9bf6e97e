// A device's answers to questions about ops and weights.
#pragma once

#include <cstdint>
#include <string>

namespace rullama::sdk {

struct OpSupport {
  bool supported = false;
  std::string reason;  // why not; a text of more than 123 bytes ends in "..."
};

// The memory a weight will take, asked for before anything is loaded; the host's estimates and
// limits rely on it. Either in_place = true and bytes = 0: CreateWeight keeps desc.data and
// allocates nothing. Or in_place = false, and bytes is the memory that CreateWeight will allocate.
// In both cases the plugin may read desc.data later, for example to gather rows in place from a
// table of which it multiplies a copy: the bytes of the file stay mapped until the weight is freed.
struct WeightLayout {
  bool in_place = false;
  uint64_t bytes = 0;
};

}  // namespace rullama::sdk
