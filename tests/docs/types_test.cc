// The table of docs/types.md: which backend runs which type of weights. The columns of plugins
// follow from docs/ops.md, whose sections are compared with what the plugins answer; that of
// `reference` from the decoders. RULLAMA_UPDATE_DOCS=1 writes the table.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rullama/sdk/dequantize.h>
#include <rullama/sdk/dtype.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <string_view>

#include "tests/docs/source_text.h"

namespace rullama {
namespace {

constexpr std::array kBackends = {
    "cpu",
#define RL_GPU_BACKEND(name, drafts_keep_bits, forms) #name,
#define RL_CARD_BACKEND(name) #name,
#include "backends/gpu_backends.def"
};

std::filesystem::path Page() { return SourceDirectory() / "docs" / "types.md"; }

// The types in the column "runs" of an op of a backend.
std::set<std::string> TypesOf(const std::string& ops, const std::string& backend,
                              const std::string& op) {
  const size_t section = ops.find("\n## Ops of " + backend + "\n");
  EXPECT_NE(section, std::string::npos) << backend;
  const std::string row = "\n| `" + op + "` | ";
  const size_t begin = ops.find(row, section) + row.size();
  std::istringstream cell(ops.substr(begin, ops.find(" |", begin) - begin));
  std::set<std::string> types;
  for (std::string type; std::getline(cell, type, ',');)
    types.insert(type.substr(type.find_first_not_of(' ')));
  return types;
}

// Types that only integers or sums of products have.
bool IsOfWeights(DType dtype) {
  switch (dtype) {
    case DType::kI8:
    case DType::kI16:
    case DType::kI32:
    case DType::kI64:
    case DType::kF64:
      return false;
    default:
      return true;
  }
}

std::string Table() {
  const std::string ops = ReadText(SourceDirectory() / "docs" / "ops.md");
  std::string table = "| type | bits a weight | reference |";
  for (const char* backend : kBackends) table += fmt::format(" {} |", backend);
  table += "\n|---|---|---|";
  for (size_t i = 0; i < kBackends.size(); ++i) table += "---|";
  table += '\n';
  for (const DTypeInfo& info : kDTypes) {
    if (!IsOfWeights(info.dtype)) continue;
    const double bits = 8.0 * info.block_bytes / info.block_elements;
    table += fmt::format("| `{}` | {:.4g} | {} |", info.name, bits,
                         sdk::FindDequantizer(info.dtype) != nullptr ? "runs" : "refused");
    for (const char* backend : kBackends) {
      bool runs = true;
      for (const char* op : {"matmul", "gather_rows"}) {
        runs = runs && TypesOf(ops, backend, op).contains(std::string(info.name));
      }
      table += fmt::format(" {} |", runs ? "runs" : "refused");
    }
    table += '\n';
  }
  return table;
}

TEST(Types, ThePageHasTheTable) {
  const std::string page = ReadText(Page());
  const size_t begin = page.find("\n|") + 1;
  ASSERT_NE(begin, 0U);
  size_t end = begin;
  while (end < page.size() && page[end] == '|') end = page.find('\n', end) + 1;
  const std::string table = Table();
  if (std::getenv("RULLAMA_UPDATE_DOCS") != nullptr) {
    std::ofstream(Page(), std::ios::binary) << page.substr(0, begin) << table << page.substr(end);
    return;
  }
  EXPECT_EQ(page.substr(begin, end - begin), table);
}

}  // namespace
}  // namespace rullama
