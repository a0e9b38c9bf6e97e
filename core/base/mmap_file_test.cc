#include "core/base/mmap_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

namespace rullama {
namespace {

class MmapFileTest : public ::testing::Test {
 protected:
  std::filesystem::path Path(const std::string& name) const {
    return std::filesystem::path(::testing::TempDir()) / ("mmap_file_test_" + name);
  }
  std::filesystem::path Write(const std::string& name, const std::string& content) const {
    const auto path = Path(name);
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }
};

TEST_F(MmapFileTest, MapsTheWholeFile) {
  const auto file = MmapFile::Open(Write("whole", "gemma"));
  ASSERT_TRUE(file) << file.error().ToString();
  ASSERT_EQ(file->bytes().size(), 5u);
  EXPECT_EQ(static_cast<char>(file->bytes()[4]), 'a');
  EXPECT_TRUE(file->CheckUnchanged());
}

TEST_F(MmapFileTest, EmptyFileIsAnEmptySpan) {
  const auto file = MmapFile::Open(Write("empty", ""));
  ASSERT_TRUE(file);
  EXPECT_TRUE(file->bytes().empty());
}

TEST_F(MmapFileTest, MissingFileDirectoryAndFifoAreNamed) {
  const auto missing = MmapFile::Open(Path("missing"));
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().id, "io.open");
  EXPECT_THAT(missing.error().message, ::testing::HasSubstr("No such file"));

  const auto directory = MmapFile::Open(::testing::TempDir());
  ASSERT_FALSE(directory);
  EXPECT_THAT(directory.error().message, ::testing::HasSubstr("a directory"));

  const auto fifo_path = Path("fifo");
  std::filesystem::remove(fifo_path);
  ASSERT_EQ(::mkfifo(fifo_path.c_str(), 0600), 0);
  const auto fifo = MmapFile::Open(fifo_path);
  ASSERT_FALSE(fifo);
  EXPECT_THAT(fifo.error().message, ::testing::HasSubstr("a FIFO"));
}

TEST_F(MmapFileTest, ShrinkingFileIsDetected) {
  const auto path = Write("shrink", "0123456789");
  const auto file = MmapFile::Open(path);
  ASSERT_TRUE(file);
  std::filesystem::resize_file(path, 3);
  const Status status = file->CheckUnchanged();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().id, "io.mapped_file_changed");
}

}  // namespace
}  // namespace rullama
