// The source tree as text, for tests that compare documents with sources. Thread-safe.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace rullama {

inline std::filesystem::path SourceDirectory() { return RULLAMA_SOURCE_DIR; }

inline std::string ReadText(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path;
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

}  // namespace rullama
