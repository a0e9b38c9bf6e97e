// How much each column of a model's matrices matters: the mean square of the activations that it is
// multiplied with, which llama.cpp's `llama-imatrix` measures over a text. Both forms of its files
// are read: GGUF (tensors "NAME.in_sum2" and "NAME.counts") and the older one of its own. The
// columns of an expert that no token chose count the same, 1 each, as llama.cpp has it.
//
// Thread safety: immutable. Errors: imatrix.file (kModelFile) for a file of another kind or a
// damaged one; those of opening files (io.*, gguf.*).
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace rullama {

class Importance {
 public:
  static Result<Importance> Read(const std::filesystem::path& path);
  // The same for bytes of the older form: a count; for each matrix its name, the number of calls
  // and as many floats as it has columns, one after another for each expert; and more that is not
  // read.
  static Result<Importance> ParseOld(std::span<const std::byte> bytes);

  // Of each column of a matrix, one after another for each expert; null for a matrix that the text
  // did not reach.
  [[nodiscard]] const std::vector<float>* Find(std::string_view tensor) const;
  // The number of matrices with rows of `row` columns that nothing was measured for: all their
  // columns are 1, or 0, which older programs wrote.
  [[nodiscard]] static size_t UnseenExperts(std::span<const float> columns, size_t row);
  [[nodiscard]] size_t size() const { return columns_.size(); }

 private:
  // Fails for numbers that no mean of squares is.
  Status Add(std::string name, std::vector<float> columns);

  std::map<std::string, std::vector<float>, std::less<>> columns_;
};

}  // namespace rullama
