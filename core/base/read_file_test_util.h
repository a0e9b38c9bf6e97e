// For tests: the bytes of a file that has to be there.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

namespace rullama {

// Reads in blocks: iterators over characters take most of the time of a test that is not optimised.
inline std::string ReadWholeFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << "cannot read " << path;
  std::ostringstream content;
  content << file.rdbuf();
  return std::move(content).str();
}

}  // namespace rullama
