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

// Whether the name is that of a source of tests or fuzz targets.
inline bool IsForTests(const std::string& name) {
  return name.find("_test") != std::string::npos || name.find("_fuzz") != std::string::npos ||
         name.find("for_test") != std::string::npos || name == "test_weights.h" ||
         name == "test_weights.cc" || name == "sampler_test_fixture.h";
}

}  // namespace rullama
