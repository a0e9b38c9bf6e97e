// Sizes and numbers of parameters for people. Pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <string>

namespace rullama {

// "1.5 TiB", "2.88 GiB", "8.9 MiB", "0.5 KiB": the largest unit of which there is at least one.
std::string SizeText(uint64_t bytes);

// "4.63 B", "3.21 M".
std::string ParametersText(uint64_t parameters);

}  // namespace rullama
