// The column of cuda in docs/types.md, which no plugin can answer for without a card: the types
// that all kernels of products are compiled for.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rullama/sdk/dtype.h>

#include <fstream>
#include <sstream>
#include <string>

#include "backends/cuda/forms.h"

namespace rullama::cuda {
namespace {

TEST(CudaForms, AreThereForTheTypesOfThePage) {
  std::stringstream page;
  page << std::ifstream(RULLAMA_SOURCE_DIR "/docs/types.md").rdbuf();
  const std::string text = page.str();
  ASSERT_NE(text.find(" opencl | cuda |\n"), std::string::npos);
  for (const DTypeInfo& info : kDTypes) {
    const size_t row = text.find(fmt::format("\n| `{}` | ", info.name));
    if (row == std::string::npos) {
      EXPECT_FALSE(HasFormsFor(info.dtype)) << info.name;
      continue;
    }
    const std::string line = text.substr(row + 1, text.find('\n', row + 1) - row - 1);
    EXPECT_EQ(line.ends_with(" runs |"), HasFormsFor(info.dtype)) << line;
  }
}

}  // namespace
}  // namespace rullama::cuda
