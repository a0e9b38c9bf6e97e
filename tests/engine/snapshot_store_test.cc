// Snapshots of prompts in files: which are found, which go first, and what is left alone.
#include "engine/scheduling/snapshot_store.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <fstream>
#include <numeric>

#include "core/base/must_test_util.h"
#include "core/base/read_file_test_util.h"

namespace rullama {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr uint64_t kRoomy = 1 << 20;

class SnapshotStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(::testing::TempDir()) / ("store_" + std::string(test->name()));
    fs::remove_all(folder_);
  }
  void TearDown() override {
    store_.reset();
    fs::remove_all(folder_);
  }

  void Open(uint64_t max_bytes = kRoomy) {
    store_.reset();
    store_ = Must(SnapshotStore::Open(folder_, max_bytes,
                                      [this](std::string_view text) { warning_ = text; }));
    store_->Expect(*owner_);
  }
  static std::vector<int32_t> Tokens(int32_t first, int64_t count) {
    std::vector<int32_t> tokens(static_cast<size_t>(count));
    std::iota(tokens.begin(), tokens.end(), first);
    return tokens;
  }
  // Stores a snapshot after 8 tokens from `first` on, used at this second.
  void Write(int32_t first, int second = 0) {
    SnapshotInfo info{.position = 8, .written = 8, .parts = {{"kv", "f16[1,128]", 256, 64, 8}}};
    Snapshot snapshot = Must(Snapshot::Allocate(std::move(info)));
    std::ranges::fill(snapshot.data(), static_cast<std::byte>(first));
    store_->Write({owner_, Tokens(first, 8), std::make_shared<const Snapshot>(std::move(snapshot)),
                   SnapshotStore::Time(std::chrono::seconds(1'700'000'000 + second))});
    store_->Flush();
  }
  std::optional<SnapshotStore::Prompt> Load(int32_t first, int64_t tokens = 20) {
    const std::vector<int64_t> cuts = {4, 8, 16};
    return store_->Load(owner_, Tokens(first, tokens), cuts);
  }
  // The files of snapshots.
  [[nodiscard]] std::vector<fs::path> Files() const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      if (entry.path().extension() == ".slot") files.push_back(entry.path());
    }
    return files;
  }

  fs::path folder_;
  std::shared_ptr<const SnapshotStore::Owner> owner_ = std::make_shared<const SnapshotStore::Owner>(
      SnapshotStore::Owner{{{1, 2}, {3, 4}}, Sha256("ann")});
  std::shared_ptr<SnapshotStore> store_;
  std::string warning_;
};

TEST_F(SnapshotStoreTest, FindsTheLongestBeginningAfterARestart) {
  Open();
  EXPECT_FALSE(Load(100));
  Write(100);
  Open();
  const auto found = Load(100);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->tokens, Tokens(100, 8));
  EXPECT_EQ(found->snapshot->data().front(), static_cast<std::byte>(100));
  EXPECT_FALSE(Load(100, /*tokens=*/8)) << "one token is left to be read";
  EXPECT_FALSE(Load(200));
  EXPECT_EQ(store_->stats().hits, 1U);
  EXPECT_EQ(store_->stats().files, 1);
}

TEST_F(SnapshotStoreTest, ReadsNothingThatMemoryHas) {
  Open();
  Write(100);
  const PromptKey key = SnapshotStore::KeyOf(*owner_, Tokens(100, 8));
  store_->SetInMemory(key, true);
  EXPECT_FALSE(Load(100));
  store_->SetInMemory(key, false);
  EXPECT_TRUE(Load(100));
}

TEST_F(SnapshotStoreTest, ClientsAndModelsShareNothing) {
  Open();
  Write(100);
  const auto ann = owner_;
  owner_ = std::make_shared<const SnapshotStore::Owner>(
      SnapshotStore::Owner{ann->fingerprints, Sha256("bob")});
  EXPECT_FALSE(Load(100));
  owner_ = std::make_shared<const SnapshotStore::Owner>(
      SnapshotStore::Owner{{{1, 2}, {3, 5}}, ann->client});
  EXPECT_FALSE(Load(100));
  owner_ = ann;
  EXPECT_TRUE(Load(100));
}

// The turns before the first picture are the same files with and without it.
TEST_F(SnapshotStoreTest, TowersCountFromTheFirstPictureOn) {
  Open();
  Write(100);
  const auto with_towers = [ann = owner_](uint64_t towers) {
    return std::make_shared<const SnapshotStore::Owner>(
        SnapshotStore::Owner{ann->fingerprints, ann->client, ModelFingerprint{towers, 0}});
  };
  std::vector<int32_t> prompt = Tokens(100, 8);
  prompt.insert(prompt.end(), 12, -1);  // rows of a picture
  const std::vector<int64_t> cuts = {4, 8, 16};
  owner_ = with_towers(1);
  EXPECT_TRUE(store_->Load(owner_, prompt, cuts));
  Write(-8);
  EXPECT_TRUE(Load(-8));
  owner_ = with_towers(2);
  EXPECT_FALSE(Load(-8));
  store_->Erase(*owner_, prompt);
  EXPECT_EQ(Files().size(), 1U) << "the text is erased, the other picture is not";
  EXPECT_FALSE(store_->Load(owner_, prompt, cuts));
}

TEST_F(SnapshotStoreTest, OnlyTheOwnerOfTheProcessMayRead) {
  Open();
  Write(100);
  struct stat info {};
  ASSERT_EQ(::stat(folder_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0700U);
  for (const auto& entry : fs::directory_iterator(folder_)) {
    ASSERT_EQ(::stat(entry.path().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777U, 0600U) << entry.path();
  }
}

TEST_F(SnapshotStoreTest, OneProcessUsesAFolderAndKeepsItsSecret) {
  Open();
  const std::string secret = store_->secret();
  EXPECT_EQ(secret.size(), 64U);
  const auto other = SnapshotStore::Open(folder_, kRoomy, {});
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().id, "server.cache_locked");
  Open();
  EXPECT_EQ(store_->secret(), secret);
}

TEST_F(SnapshotStoreTest, ADamagedFileIsRemovedAndOthersAreLeftAlone) {
  Open();
  Write(100);
  const fs::path file = Files().front();
  std::string bytes = ReadWholeFile(file.string());
  bytes[bytes.size() / 2] ^= 1;
  std::ofstream(file, std::ios::binary) << bytes;
  std::ofstream(folder_ / "stranger") << "mine";
  std::ofstream(folder_ / "0000000000000001-x.slot") << "mine";
  Open();
  EXPECT_FALSE(Load(100));
  EXPECT_FALSE(fs::exists(file));
  EXPECT_EQ(store_->stats().errors, 1U);
  EXPECT_EQ(store_->stats().bytes, 0U);
  EXPECT_THAT(warning_, HasSubstr("slot.corrupt"));
  EXPECT_TRUE(fs::exists(folder_ / "stranger"));
  EXPECT_TRUE(fs::exists(folder_ / "0000000000000001-x.slot"));
}

TEST_F(SnapshotStoreTest, AFileThatIsGoneIsNoError) {
  Open();
  Write(100);
  fs::remove(Files().front());
  EXPECT_FALSE(Load(100));
  EXPECT_EQ(store_->stats().errors, 0U);
  EXPECT_EQ(store_->stats().misses, 1U);
  EXPECT_EQ(store_->stats().files, 0);
  EXPECT_EQ(warning_, "");
}

TEST_F(SnapshotStoreTest, WhatWasUsedLongestAgoGivesWay) {
  Open();
  Write(100);
  const uint64_t size = store_->stats().bytes;
  Open(3 * size + 4096 + 100);
  Write(200, 2);
  Write(300, 1);
  EXPECT_TRUE(Load(100)) << "which makes it the latest";
  Write(400, 3);
  EXPECT_EQ(store_->stats().evictions, 1U);
  EXPECT_FALSE(Load(300));
  Write(500, 1);  // older than all others
  EXPECT_FALSE(Load(500));
  for (const int32_t first : {100, 200, 400}) EXPECT_TRUE(Load(first)) << first;
  EXPECT_LE(store_->stats().bytes, 3 * size);
}

TEST_F(SnapshotStoreTest, ThoseOfOtherModelsGiveWayFirst) {
  const auto first = owner_;
  Open();
  Write(100, 9);
  const uint64_t size = store_->stats().bytes;
  owner_ =
      std::make_shared<const SnapshotStore::Owner>(SnapshotStore::Owner{{{7, 7}}, first->client});
  Open(2 * size + 4096 + 100);
  Write(200, 2);
  Write(300, 1);
  EXPECT_TRUE(Load(200));
  EXPECT_TRUE(Load(300));
  owner_ = first;
  EXPECT_FALSE(Load(100));
}

TEST_F(SnapshotStoreTest, ErasesAllBeginnings) {
  Open();
  Write(100);
  store_->Erase(*owner_, Tokens(100, 7));
  EXPECT_EQ(Files().size(), 1U);
  store_->Erase(*owner_, Tokens(100, 12));
  EXPECT_TRUE(Files().empty());
  EXPECT_FALSE(Load(100));
}

}  // namespace
}  // namespace rullama
