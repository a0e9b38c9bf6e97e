#include "core/plugin/blob_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <fstream>

namespace rullama {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::byte> Bytes(std::string_view text) {
  const auto span = std::as_bytes(std::span(text));
  return {span.begin(), span.end()};
}

class BlobCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    directory_ = fs::path(::testing::TempDir()) / (std::string("blob_cache_") + info->name());
    fs::remove_all(directory_);
  }
  void TearDown() override { fs::remove_all(directory_); }
  BlobCache Make(const fs::path& directory, uint64_t max_bytes = kMaxCacheBytes) {
    return BlobCache(
        directory, [this](const std::string& text) { notices_.push_back(text); }, max_bytes);
  }
  // As if the blob had last been used that long ago.
  static void Age(const BlobCache& cache, std::string_view key, std::chrono::minutes by) {
    fs::last_write_time(cache.PathOf(key), fs::file_time_type::clock::now() - by);
  }

  fs::path directory_;
  std::vector<std::string> notices_;
};

TEST_F(BlobCacheTest, RoundTripAndReplace) {
  BlobCache cache = Make(directory_);
  EXPECT_EQ(cache.Get("a"), std::nullopt);
  EXPECT_TRUE(cache.Put("a", Bytes("first")));
  EXPECT_TRUE(cache.Put("b", Bytes("other")));
  EXPECT_EQ(cache.Get("a"), Bytes("first"));
  EXPECT_TRUE(cache.Put("a", Bytes("second, longer")));
  EXPECT_EQ(cache.Get("a"), Bytes("second, longer"));
  EXPECT_EQ(cache.Get("b"), Bytes("other"));
  EXPECT_EQ(Make(directory_).Get("a"), Bytes("second, longer")) << "survives the process";
  EXPECT_THAT(notices_, IsEmpty());
  // No temporary files are left.
  const auto files = fs::directory_iterator(directory_);
  EXPECT_EQ(std::distance(fs::begin(files), fs::end(files)), 2);
}

TEST_F(BlobCacheTest, KeysCannotLeaveTheDirectory) {
  BlobCache cache = Make(directory_);
  for (const char* key : {"../../evil", "/etc/passwd", "a/b", "\n", "..", "CON"}) {
    EXPECT_EQ(cache.PathOf(key).parent_path(), directory_);
    EXPECT_TRUE(cache.Put(key, Bytes(key)));
    EXPECT_EQ(cache.Get(key), Bytes(key));
  }
}

TEST_F(BlobCacheTest, EveryDamagedByteIsAMiss) {
  BlobCache cache = Make(directory_);
  ASSERT_TRUE(cache.Put("key", Bytes("data")));
  const fs::path path = cache.PathOf("key");
  const auto size = static_cast<size_t>(fs::file_size(path));
  for (size_t at = 0; at < size; ++at) {
    ASSERT_TRUE(cache.Put("key", Bytes("data")));
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(at));
    const char changed = static_cast<char>(file.get() ^ 0x40);
    file.seekp(static_cast<std::streamoff>(at));
    file.put(changed);
    file.close();
    EXPECT_EQ(cache.Get("key"), std::nullopt) << "byte " << at;
  }
}

TEST_F(BlobCacheTest, EveryTruncationIsAMiss) {
  BlobCache cache = Make(directory_);
  ASSERT_TRUE(cache.Put("key", Bytes("data")));
  const fs::path path = cache.PathOf("key");
  for (uintmax_t size = fs::file_size(path); size-- > 0;) {
    fs::resize_file(path, size);
    EXPECT_EQ(cache.Get("key"), std::nullopt) << size;
  }
}

TEST_F(BlobCacheTest, FileOfAnotherKeyIsAMiss) {
  BlobCache cache = Make(directory_);
  ASSERT_TRUE(cache.Put("one", Bytes("data")));
  fs::rename(cache.PathOf("one"), cache.PathOf("two"));  // as if the hashes were equal
  EXPECT_EQ(cache.Get("two"), std::nullopt);
}

TEST_F(BlobCacheTest, NoWritablePlaceIsOneNotice) {
  // A file where a directory is needed; unlike permissions this also stops root.
  std::ofstream(directory_) << "in the way";
  BlobCache cache = Make(directory_ / "below");
  EXPECT_FALSE(cache.Put("a", Bytes("x")));
  EXPECT_FALSE(cache.Put("a", Bytes("x")));
  EXPECT_EQ(cache.Get("a"), std::nullopt);
  EXPECT_EQ(notices_.size(), 1U);

  BlobCache none = Make({});
  EXPECT_FALSE(none.Put("a", Bytes("x")));
  EXPECT_EQ(none.Get("a"), std::nullopt);
  EXPECT_EQ(notices_.size(), 2U);
}

TEST_F(BlobCacheTest, OddKeysAndDataAreRefused) {
  BlobCache cache = Make(directory_);
  EXPECT_FALSE(cache.Put("", Bytes("x")));
  EXPECT_FALSE(cache.Put("a", {}));
  EXPECT_FALSE(cache.Put(std::string(5000, 'k'), Bytes("x")));
  EXPECT_THAT(notices_, IsEmpty());
}

TEST_F(BlobCacheTest, RemovesWhatWasUsedLongestAgo) {
  using std::chrono::minutes;
  const std::vector<std::byte> data(1000);
  BlobCache cache = Make(directory_, /*max_bytes=*/3500);
  for (const char* key : {"a", "b", "c"}) ASSERT_TRUE(cache.Put(key, data));
  Age(cache, "a", minutes(30));
  Age(cache, "b", minutes(20));
  Age(cache, "c", minutes(10));
  EXPECT_EQ(cache.Get("a"), data) << "which now is the newest";
  EXPECT_TRUE(cache.Put("d", data));
  EXPECT_EQ(cache.Get("b"), std::nullopt);
  for (const char* key : {"a", "c", "d"}) EXPECT_EQ(cache.Get(key), data) << key;
}

TEST_F(BlobCacheTest, KeepsABlobThatIsLargerThanAllMayBe) {
  BlobCache cache = Make(directory_, /*max_bytes=*/500);
  ASSERT_TRUE(cache.Put("a", std::vector<std::byte>(100)));
  EXPECT_TRUE(cache.Put("b", std::vector<std::byte>(1000)));
  EXPECT_EQ(cache.Get("a"), std::nullopt);
  EXPECT_EQ(cache.Get("b"), std::vector<std::byte>(1000));
}

TEST_F(BlobCacheTest, RemovesWhatAProcessLeftThatEndedWhileItWrote) {
  BlobCache cache = Make(directory_, /*max_bytes=*/2500);
  ASSERT_TRUE(cache.Put("a", std::vector<std::byte>(1000)));
  const fs::path torn = cache.PathOf("b").string() + ".Xy12Zz";
  std::ofstream(torn) << std::string(1000, 'x');
  const fs::path foreign = directory_ / "notes.txt";
  std::ofstream(foreign) << std::string(5000, 'x');
  fs::last_write_time(torn, fs::file_time_type::clock::now() - std::chrono::hours(1));
  const fs::path folder = directory_ / "folder.blob";
  fs::create_directory(folder);
  fs::last_write_time(folder, fs::file_time_type::clock::now() - std::chrono::hours(2));
  EXPECT_TRUE(cache.Put("c", std::vector<std::byte>(1000)));
  EXPECT_FALSE(fs::exists(torn));
  EXPECT_TRUE(fs::exists(foreign));
  EXPECT_TRUE(fs::exists(folder));
  EXPECT_NE(cache.Get("a"), std::nullopt);
}

TEST(BlobCacheDirectory, FollowsTheXdgSpecification) {
  const auto with = [](const char* xdg, const char* home) {
    const char* old_home = ::getenv("HOME");
    const std::string saved = old_home == nullptr ? "" : old_home;
    xdg == nullptr ? ::unsetenv("XDG_CACHE_HOME") : ::setenv("XDG_CACHE_HOME", xdg, 1);
    home == nullptr ? ::unsetenv("HOME") : ::setenv("HOME", home, 1);
    fs::path result = BlobCache::DefaultDirectory();
    ::unsetenv("XDG_CACHE_HOME");
    ::setenv("HOME", saved.c_str(), 1);
    return result;
  };
  EXPECT_EQ(with("/x", "/h"), "/x/rullama");
  EXPECT_EQ(with(nullptr, "/h"), "/h/.cache/rullama");
  EXPECT_EQ(with("relative", "/h"), "/h/.cache/rullama");
  EXPECT_EQ(with("", "/h"), "/h/.cache/rullama");
  EXPECT_EQ(with(nullptr, nullptr), "");
}

}  // namespace
}  // namespace rullama
