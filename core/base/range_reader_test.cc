#include "core/base/range_reader.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace rullama {
namespace {

namespace fs = std::filesystem;

class RangeReaderTest : public testing::Test {
 protected:
  void SetUp() override { Write("0123456789"); }
  void TearDown() override { fs::remove(path_); }

  void Write(const std::string& text) { std::ofstream(path_, std::ios::binary) << text; }

  // The bytes of a read, or the id of its error.
  static std::string Read(const RangeReader& file, uint64_t offset, size_t bytes) {
    std::string text(bytes, '-');
    const Status status = file.Read(offset, std::as_writable_bytes(std::span(text)));
    return status ? text : status.error().id;
  }

  const fs::path path_ = fs::path(testing::TempDir()) / "range_reader_test.txt";
};

TEST_F(RangeReaderTest, ReadsAnyRange) {
  const auto file = OpenRangeReader(path_);
  ASSERT_TRUE(file) << file.error().ToString();
  EXPECT_EQ((*file)->size(), 10u);
  EXPECT_EQ((*file)->path(), path_.string());
  EXPECT_EQ(Read(**file, 0, 10), "0123456789");
  EXPECT_EQ(Read(**file, 3, 4), "3456");
  EXPECT_EQ(Read(**file, 10, 0), "");
}

TEST_F(RangeReaderTest, DoesNotReadBeyondTheEnd) {
  const auto file = OpenRangeReader(path_);
  ASSERT_TRUE(file) << file.error().ToString();
  EXPECT_EQ(Read(**file, 8, 3), "io.read");
  EXPECT_EQ(Read(**file, 100, 1), "io.read");
}

TEST_F(RangeReaderTest, SeesThatTheFileChanged) {
  const auto file = OpenRangeReader(path_);
  ASSERT_TRUE(file) << file.error().ToString();
  EXPECT_TRUE((*file)->CheckUnchanged());
  Write("012");
  EXPECT_EQ((*file)->CheckUnchanged().error().id, "io.mapped_file_changed");
}

TEST_F(RangeReaderTest, SaysWhyAFileCannotBeOpened) {
  EXPECT_EQ(OpenRangeReader(path_.string() + ".missing").error().id, "io.open");
  EXPECT_EQ(OpenRangeReader(testing::TempDir()).error().id, "io.open");
}

}  // namespace
}  // namespace rullama
