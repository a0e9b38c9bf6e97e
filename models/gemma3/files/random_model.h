// Tiny Gemma 3 models whose shapes and weights depend on a seed alone, for comparisons without a
// file. Pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "models/common/graph/tensor_table.h"
#include "models/gemma3/graph/config.h"

namespace rullama {

struct RandomGemma3 {
  Gemma3Config config;
  ModelWeights weights;  // names and types
  uint64_t seed = 0;

  [[nodiscard]] std::string Describe() const;  // one line
};

// A config that passes ValidateConfig and needs a few hundred kilobytes.
RandomGemma3 MakeRandomGemma3(uint64_t seed);

}  // namespace rullama
