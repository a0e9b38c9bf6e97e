#include "core/plugin/program_file.h"

#include <gtest/gtest.h>

#include <fstream>

namespace rullama {
namespace {

TEST(ProgramFile, OfAReplacedProgramIsTheNewOne) {
  EXPECT_EQ(ProgramFile("/nosuch/bin/rullama (deleted)"), "/nosuch/bin/rullama");
  EXPECT_EQ(ProgramFile("/nosuch/bin/rullama"), "/nosuch/bin/rullama");
}

TEST(ProgramFile, MayHaveANameThatEndsLikeTheMark) {
  const std::string name = ::testing::TempDir() + "program (deleted)";
  std::ofstream(name).put('x');
  EXPECT_EQ(ProgramFile(name), name);
}

}  // namespace
}  // namespace rullama
