#include "backends/cpu/kernels/transpose.h"

#include <gtest/gtest.h>

#include <vector>

namespace rullama::cpu {
namespace {

TEST(Transpose, MovesEachElementAndNothingElse) {
  constexpr float kUntouched = -1;
  for (const size_t count : {1, 3, 4, 7, 32, 97}) {
    for (const size_t columns : {1, 2, 4, 5, 8, 19}) {
      std::vector<float> rows(count * columns);
      for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i);
      std::vector<float> out(rows.size() + 1, kUntouched);
      Transpose(rows.data(), count, columns, out.data());
      for (size_t i = 0; i < count; ++i) {
        for (size_t j = 0; j < columns; ++j) {
          EXPECT_EQ(out[j * count + i], rows[i * columns + j]) << i << ", " << j;
        }
      }
      EXPECT_EQ(out.back(), kUntouched);
    }
  }
}

}  // namespace
}  // namespace rullama::cpu
