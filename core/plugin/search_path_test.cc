#include "core/plugin/search_path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

namespace rullama {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(SearchPath, BackendNameOf) {
  EXPECT_EQ(BackendNameOf("/x/librullama_backend_cpu.so"), "cpu");
  EXPECT_EQ(BackendNameOf("librullama_backend_.so"), std::nullopt);
  EXPECT_EQ(BackendNameOf("librullama_backend_cpu.so.1"), std::nullopt);
  EXPECT_EQ(BackendNameOf("rullama_backend_cpu.so"), std::nullopt);
  EXPECT_EQ(BackendNameOf("librullama_backend_cpu.txt"), std::nullopt);
}

TEST(SearchPath, SplitPathList) {
  EXPECT_THAT(SplitPathList(""), IsEmpty());
  EXPECT_THAT(SplitPathList(":::"), IsEmpty());
  EXPECT_THAT(SplitPathList("/a"), ElementsAre("/a"));
  EXPECT_THAT(SplitPathList(":/a::/b:"), ElementsAre("/a", "/b"));
}

TEST(SearchPath, Trust) {
  const fs::path directory = fs::path(::testing::TempDir()) / "search_path_trust";
  fs::create_directories(directory);
  const fs::path file = directory / "plugin.so";
  std::ofstream{file};
  fs::permissions(file, fs::perms::owner_all);

  fs::permissions(directory, fs::perms::owner_all);
  EXPECT_EQ(WhyUntrustedDirectory(directory), std::nullopt);
  EXPECT_EQ(WhyUntrustedFile(file), std::nullopt);

  fs::permissions(directory, fs::perms::all);
  EXPECT_NE(WhyUntrustedDirectory(directory), std::nullopt);
  EXPECT_NE(WhyUntrustedFile(file), std::nullopt);

  // Like /tmp: new files may appear, but this one cannot be replaced.
  fs::permissions(directory, fs::perms::all | fs::perms::sticky_bit);
  EXPECT_NE(WhyUntrustedDirectory(directory), std::nullopt);
  EXPECT_EQ(WhyUntrustedFile(file), std::nullopt);

  fs::permissions(directory, fs::perms::owner_all);
  fs::permissions(file, fs::perms::owner_all | fs::perms::others_write);
  EXPECT_NE(WhyUntrustedFile(file), std::nullopt);
  fs::remove_all(directory);
}

TEST(SearchPath, PluginFilesAreSortedAndOthersLeftOut) {
  const fs::path directory = fs::path(::testing::TempDir()) / "search_path_files";
  fs::create_directories(directory);
  for (const char* name : {"librullama_backend_b.so", "librullama_backend_a.so", "readme.txt"}) {
    std::ofstream(directory / name) << "x";
  }
  std::string error;
  EXPECT_THAT(PluginFilesIn(directory, &error), ElementsAre(directory / "librullama_backend_a.so",
                                                            directory / "librullama_backend_b.so"));
  EXPECT_EQ(error, "");
  fs::remove_all(directory);
  EXPECT_THAT(PluginFilesIn(directory, &error), IsEmpty());
  EXPECT_THAT(error, ::testing::HasSubstr("No such file or directory"));
}

}  // namespace
}  // namespace rullama
