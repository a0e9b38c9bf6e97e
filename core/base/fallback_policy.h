// The treatment of ops that the chosen backend refuses; shared by configuration and placement.
#pragma once

#include <cstdint>

namespace rullama {

enum class FallbackPolicy : uint8_t {
  kDeny,   // a refused op is an error
  kList,   // only the ops named in `host_ops` may run on the host
  kAllow,  // any op may run on the host
};

}  // namespace rullama
