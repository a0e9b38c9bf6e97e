// Keys of other programs' configurations.
#pragma once

#include <string_view>

namespace rullama {

// The sentence that says what to use instead of a key of mlx_lm.lora's configuration, for those
// whose names or meanings are not those of the block `training`; empty for all others.
std::string_view AdviceOnKey(std::string_view key);

}  // namespace rullama
