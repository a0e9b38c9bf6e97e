// Numbers of parameters and bytes as people write them. Pure functions.
#pragma once

#include <cstdint>
#include <string>

namespace rullama::cli {

std::string ParametersText(uint64_t parameters);  // "4.63 B", "3.21 M"
std::string GibibytesText(uint64_t bytes);        // "2.88 GiB"; less than one as "8.9 MiB"

}  // namespace rullama::cli
