// Compares Dequantize bit for bit with a folder of reference vectors (index.json, X.q, X.f32).
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/base/read_file_test_util.h"
#include "core/gguf/dequantize.h"
#include "core/gguf/gguf_value.h"

namespace rullama {

inline std::vector<std::byte> ReadBytes(const std::filesystem::path& path) {
  const std::string text = ReadWholeFile(path);
  const auto* first = reinterpret_cast<const std::byte*>(text.data());
  return {first, first + text.size()};
}

// Returns how many values were compared.
inline size_t CompareWithQuantVectors(const std::filesystem::path& folder) {
  std::ifstream index_file(folder / "index.json");
  const auto index = nlohmann::json::parse(index_file, nullptr, false);
  if (index.is_discarded()) {
    ADD_FAILURE() << "cannot read " << folder / "index.json";
    return 0;
  }
  const size_t expected_count = index["rows"].get<size_t>() * index["cols"].get<size_t>();
  size_t compared = 0;
  for (const auto& type : index["types"]) {
    const auto name = type["name"].get<std::string>();
    const DTypeInfo* info = FindDType(type["gguf_type"].get<uint32_t>());
    EXPECT_NE(info, nullptr) << name;
    if (info == nullptr) continue;
    const auto blocks = ReadBytes(folder / (name + ".q"));
    const auto reference = ReadBytes(folder / (name + ".f32"));
    EXPECT_EQ(reference.size(), expected_count * sizeof(float)) << name;
    std::vector<float> values(reference.size() / sizeof(float));
    const Status status = Dequantize(info->dtype, blocks, values);
    EXPECT_TRUE(status) << name << ": " << (status ? "" : status.error().ToString());
    size_t wrong = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      const auto expected = LoadUnaligned<uint32_t>(reference.data() + i * sizeof(float));
      if (std::bit_cast<uint32_t>(values[i]) != expected) ++wrong;
      ++compared;
    }
    EXPECT_EQ(wrong, 0u) << name << ": values that differ from the reference";
  }
  return compared;
}

}  // namespace rullama
