// The table of docs/memory.md: what the models take, from the shapes in configs/ and the sizes of
// files in README.md. RULLAMA_UPDATE_DOCS=1 writes the table.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rullama/sdk/dtype.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "core/config/layered_config.h"
#include "tests/docs/source_text.h"

namespace rullama {
namespace {

std::filesystem::path MemoryPage() { return SourceDirectory() / "docs" / "memory.md"; }

constexpr DType kCacheTypes[] = {DType::kF16, DType::kQ8_0, DType::kQ4_0};

struct ModelRow {
  std::string model, configuration;
  double file_bytes;
};

// The rows of the table of models in README.md that write text.
std::vector<ModelRow> Models() {
  std::vector<ModelRow> models;
  const std::string page = ReadText(SourceDirectory() / "README.md");
  static const std::regex kRow(R"(\n\| ([^|]+) \| ([0-9.]+) GB \| \[`(configs/[^`]+)`\])");
  for (std::sregex_iterator row(page.begin(), page.end(), kRow), end; row != end; ++row) {
    models.push_back({(*row)[1], (*row)[3], std::stod((*row)[2]) * 1e9});
  }
  return models;
}

// Bytes of the caches of a slot that do not grow with the context, and for each token beyond.
struct ModelCache {
  double rings = 0, of_token = 0;
};

ModelCache CacheOf(const ArchitectureConfig& model, DType type) {
  ModelCache size;
  const int64_t owned = model.layers.value() - model.shared_kv_layers.value_or(0);
  for (int64_t layer = 1; layer <= owned; ++layer) {
    const bool global = layer % model.pattern.value() == 0;
    const int64_t heads = global ? model.kv_heads->global : model.kv_heads->sliding;
    const int64_t width = global ? model.head_dim->global : model.head_dim->sliding;
    const auto row = static_cast<double>(2 * RowBytes(type, static_cast<uint64_t>(heads * width)));
    if (global) {
      size.of_token += row;
    } else {
      size.rings += row * static_cast<double>(model.sliding_window.value());
    }
  }
  return size;
}

// "24k", or "all" of what the model was trained for.
std::string LongestContext(const ArchitectureConfig& model, double free_bytes, DType type) {
  const ModelCache cache = CacheOf(model, type);
  const double tokens = (free_bytes - cache.rings) / cache.of_token;
  if (tokens < 1000) return "-";
  if (tokens >= static_cast<double>(model.context_length.value())) return "all";
  return fmt::format("{}k", static_cast<int64_t>(tokens / 1000));
}

std::string MemoryTable() {
  constexpr double kReserve = 0.5e9;
  std::string table =
      "| model | weights | rings of a slot (f16, q8_0, q4_0) | 1,000 tokens (f16, q8_0, q4_0) | 8 "
      "GB | "
      "12 GB | 16 GB | 24 GB |\n|---|---|---|---|---|---|---|---|\n";
  for (const ModelRow& row : Models()) {
    LayeredConfig config;
    const Status read = config.ApplyFile(SourceDirectory() / row.configuration);
    EXPECT_TRUE(read) << row.configuration;
    const ArchitectureConfig& model = config.values().architecture;
    std::string rings, tokens;
    for (const DType type : kCacheTypes) {
      const ModelCache size = CacheOf(model, type);
      rings += fmt::format("{}{:.0f}", rings.empty() ? "" : " / ", size.rings / 1e6);
      tokens += fmt::format("{}{:.1f}", tokens.empty() ? "" : " / ", size.of_token / 1e3);
    }
    table += fmt::format("| {} | {:.2g} GB | {} MB | {} MB |", row.model, row.file_bytes / 1e9,
                         rings, tokens);
    for (const double memory : {8e9, 12e9, 16e9, 24e9}) {
      std::string longest;
      for (const DType type : kCacheTypes) {
        longest += (longest.empty() ? "" : " / ") +
                   LongestContext(model, memory - row.file_bytes - kReserve, type);
      }
      table += fmt::format(" {} |", longest);
    }
    table += '\n';
  }
  return table;
}

TEST(Memory, ThePageHasTheTable) {
  const std::string page = ReadText(MemoryPage());
  const size_t begin = page.find("\n|") + 1;
  ASSERT_NE(begin, 0U);
  size_t end = begin;
  while (end < page.size() && page[end] == '|') end = page.find('\n', end) + 1;
  const std::string table = MemoryTable();
  if (std::getenv("RULLAMA_UPDATE_DOCS") != nullptr) {
    std::ofstream(MemoryPage(), std::ios::binary)
        << page.substr(0, begin) << table << page.substr(end);
    return;
  }
  EXPECT_EQ(page.substr(begin, end - begin), table);
}

}  // namespace
}  // namespace rullama
