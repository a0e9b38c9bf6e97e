// What tables and headings say of a model: name, size, parameters, quantisation. Pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "cli/model_file.h"

namespace rullama::cli {

struct ModelFacts {
  std::string name;          // of a file without its folder; an Ollama name as it was given
  std::string quantization;  // "Q4_K_M"; from general.file_type, else the type of most bytes
  uint64_t parameters = 0;
  uint64_t bytes = 0;  // of all tensors
};

ModelFacts FactsOf(const ModelFile& model);

}  // namespace rullama::cli
