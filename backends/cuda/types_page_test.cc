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

// The cell `column` of a row of a table, 1 for the first: "runs".
std::string Cell(const std::string& row, size_t column) {
  std::istringstream cells(row);
  std::string cell;
  for (size_t i = 0; i <= column; ++i) std::getline(cells, cell, '|');
  return cell.size() < 2 ? cell : cell.substr(1, cell.size() - 2);
}

TEST(CudaForms, AreThereForTheTypesOfThePage) {
  std::stringstream page;
  page << std::ifstream(RULLAMA_SOURCE_DIR "/docs/types.md").rdbuf();
  const std::string text = page.str();
  const size_t head = text.find("\n| type | ") + 1;
  const std::string names = text.substr(head, text.find('\n', head) - head);
  size_t column = 1;
  while (column < 16 && Cell(names, column) != "cuda") ++column;
  ASSERT_EQ(Cell(names, column), "cuda");
  for (const DTypeInfo& info : kDTypes) {
    const size_t row = text.find(fmt::format("\n| `{}` | ", info.name));
    if (row == std::string::npos) {
      EXPECT_FALSE(HasFormsFor(info.dtype)) << info.name;
      continue;
    }
    const std::string line = text.substr(row + 1, text.find('\n', row + 1) - row - 1);
    EXPECT_EQ(Cell(line, column), HasFormsFor(info.dtype) ? "runs" : "refused") << line;
  }
}

}  // namespace
}  // namespace rullama::cuda
