#include "core/base/mmap_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>

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

// Resident pages of the mapping, as the kernel counts them.
size_t ResidentPages(std::span<const std::byte> pages) {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const auto wanted = reinterpret_cast<uintptr_t>(pages.data());
  std::ifstream maps("/proc/self/smaps");
  bool here = false;
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0, end = 0, kilobytes = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {
      here = begin <= wanted && wanted < end;
    } else if (here && std::sscanf(line.c_str(), "Rss: %lu kB", &kilobytes) == 1) {
      return kilobytes * 1024 / page;
    }
  }
  return 0;
}

TEST_F(MmapFileTest, WhatIsReleasedLeavesTheProcessAndComesBack) {
  const std::string content(size_t{1} << 20, 'g');
  const auto file = MmapFile::Open(Write("released", content));
  ASSERT_TRUE(file) << file.error().ToString();
  const auto sum = [&] { return std::ranges::count(file->bytes(), std::byte{'g'}); };
  EXPECT_EQ(sum(), std::ssize(content));
  const size_t before = ResidentPages(file->bytes());
  // Only whole pages are released: the first and the last are shared with neighbours.
  file->Release(file->bytes().subspan(1, content.size() - 2));
  EXPECT_EQ(before, content.size() / static_cast<size_t>(::sysconf(_SC_PAGESIZE)));
  EXPECT_EQ(ResidentPages(file->bytes()), 2u);
  EXPECT_EQ(sum(), std::ssize(content));
  file->Release({});
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
