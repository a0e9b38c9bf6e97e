// Adds up the squares of activations and writes them as an importance matrix in llama.cpp's form of
// GGUF, which Importance::Read() and llama-quantize read: for each matrix "NAME.in_sum2" of
// [experts, columns] and "NAME.counts" of [experts, 1], with one expert where all rows meet the
// same matrix.
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

  // Which experts the rows of a step chose.
  struct Routes {
    std::span<const int32_t> experts;  // [rows, chosen]
    size_t expert_count = 0;
  };
  // The same for the matrices of experts: activations are those of a row for all the experts that
  // it chose, or one for each, [rows, chosen, columns]. All ids are below expert_count.
  void Add(std::string_view tensor, std::span<const float> activations, size_t columns,
           const Routes& routes);

  // The number of matrices in `tensor` that no row chose.
  [[nodiscard]] size_t UnseenExperts(std::string_view tensor) const;

  struct Origin {
    std::string text;  // the name of the file
    uint32_t chunks = 0;
    uint32_t chunk_tokens = 0;
  };
  Status Write(AtomicFile file, const Origin& origin) const;

 private:
  struct Sums {
    std::vector<double> squares;  // [experts, columns]
    std::vector<uint64_t> rows;   // of each expert
  };
  Sums& SumsOf(std::string_view tensor, size_t experts, size_t columns);

  std::map<std::string, Sums, std::less<>> sums_;
};

}  // namespace rullama
