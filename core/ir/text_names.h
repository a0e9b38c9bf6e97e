// Names as the text form spells them. Internal to core/ir.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace rullama {

// The name a constant has unless another is given: its source, with "@row" if it begins later.
std::string DefaultConstantName(std::string_view source, int64_t first_row);

}  // namespace rullama
