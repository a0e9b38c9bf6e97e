// Adds up the squares of activations and writes them as an importance matrix in llama.cpp's form of
// GGUF, which Importance::Read() and llama-quantize read.
//
// Not thread-safe. Errors: gguf.* and io.* of writing (core/gguf/atomic_file.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/gguf/atomic_file.h"

namespace rullama {

class ImportanceSums {
 public:
  // Adds rows of `columns` activations of a matrix.
  void Add(std::string_view tensor, std::span<const float> rows, size_t columns);

  struct Origin {
    std::string text;  // the name of the file
    uint32_t chunks = 0;
    uint32_t chunk_tokens = 0;
  };
  Status Write(AtomicFile file, const Origin& origin) const;

 private:
  struct Sums {
    std::vector<double> squares;  // of each column
    uint64_t rows = 0;
  };
  std::map<std::string, Sums, std::less<>> sums_;
};

}  // namespace rullama
