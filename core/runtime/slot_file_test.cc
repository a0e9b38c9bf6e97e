// Files of slots: what was written is read again, and a damaged file gives nothing.
#include "core/runtime/slot_file.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "core/base/must_test_util.h"
#include "core/base/read_file_test_util.h"

namespace rullama {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

std::shared_ptr<Snapshot> SnapshotOf(SnapshotInfo info, int seed) {
  Snapshot snapshot = Must(Snapshot::Allocate(std::move(info)));
  for (size_t i = 0; i < snapshot.bytes(); ++i) {
    snapshot.data()[i] = static_cast<std::byte>(i * 7 + static_cast<size_t>(seed));
  }
  return std::make_shared<Snapshot>(std::move(snapshot));
}

StoredSlot ExampleSlot() {
  StoredSlot slot;
  slot.fingerprints = {{1, 2}, {3, 4}};
  slot.owner = Sha256("ann");
  slot.tokens = {2, 11, 12, 13, 14};
  slot.chunked = 4;
  slot.all = SnapshotOf({.position = 5,
                         .written = 6,
                         .parts = {{"kv.0", "f16[1,4]", 8, 4, 4}, {"kv.1", "f16[1,4]", 8, 64, 6}}},
                        1);
  slot.rings = {SnapshotOf({.content = SnapshotContent::kRings,
                            .position = 2,
                            .written = 2,
                            .parts = {{"kv.0", "f16[1,4]", 8, 4, 2}}},
                           2),
                SnapshotOf({.content = SnapshotContent::kRings,
                            .position = 4,
                            .written = 4,
                            .parts = {{"kv.0", "f16[1,4]", 8, 4, 4}}},
                           3)};
  return slot;
}

class SlotFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(::testing::TempDir()) / ("slot_" + std::string(test->name()));
    std::filesystem::create_directory(folder_);
    path_ = folder_ / "a";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void WriteBytes(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary) << bytes;
  }
  static std::string ErrorOf(const std::string& bytes) {
    const auto read = ParseSlotFile(std::as_bytes(std::span(bytes)));
    return read ? "none" : read.error().id;
  }
  [[nodiscard]] std::string Good() const {
    EXPECT_TRUE(SlotFileWriter(ExampleSlot()).Write(path_));
    return ReadWholeFile(path_.string());
  }

  std::filesystem::path folder_;
  std::filesystem::path path_;
};

void ExpectEqual(const Snapshot& read, const Snapshot& stored) {
  EXPECT_EQ(read.position(), stored.position());
  EXPECT_EQ(read.info().written, stored.info().written);
  EXPECT_EQ(read.info().content, stored.info().content);
  EXPECT_EQ(read.info().parts, stored.info().parts);
  EXPECT_THAT(read.data(), ElementsAreArray(stored.data()));
}

TEST_F(SlotFileTest, ReadsWhatWasWritten) {
  const StoredSlot stored = ExampleSlot();
  ASSERT_TRUE(SlotFileWriter(stored).Write(path_));
  EXPECT_EQ(std::filesystem::file_size(path_), SlotFileWriter(stored).file_bytes());
  const StoredSlot read = Must(ReadSlotFile(path_));
  EXPECT_EQ(read.fingerprints, stored.fingerprints);
  EXPECT_EQ(read.owner, stored.owner);
  EXPECT_EQ(read.tokens, stored.tokens);
  EXPECT_EQ(read.chunked, 4);
  ExpectEqual(*read.all, *stored.all);
  ASSERT_EQ(read.rings.size(), 2U);
  for (size_t i = 0; i < 2; ++i) ExpectEqual(*read.rings[i], *stored.rings[i]);
  EXPECT_EQ(Must(ReadSlotFileHeader(path_)).tokens, stored.tokens);
}

TEST_F(SlotFileTest, OnlyItsOwnerMayReadIt) {
  WriteBytes("older");
  ASSERT_EQ(::chmod(path_.c_str(), 0644), 0);
  ASSERT_TRUE(SlotFileWriter(ExampleSlot()).Write(path_));
  struct stat info {};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0600U);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

TEST_F(SlotFileTest, LinksAndFoldersAreNeitherReadNorWritten) {
  const std::filesystem::path victim = folder_ / "victim";
  ASSERT_TRUE(SlotFileWriter(ExampleSlot()).Write(victim));
  const std::string before = ReadWholeFile(victim.string());
  std::filesystem::create_symlink(victim, path_);
  EXPECT_EQ(ReadSlotFile(path_).error().id, "slot.not_found");
  EXPECT_EQ(SlotFileWriter(ExampleSlot()).Write(path_).error().id, "slot.file");
  EXPECT_EQ(ReadWholeFile(victim.string()), before);
  EXPECT_EQ(ReadSlotFile(folder_).error().id, "slot.not_found");
  EXPECT_EQ(ReadSlotFile(folder_ / "none").error().id, "slot.not_found");
}

TEST_F(SlotFileTest, NoticesEveryChangedByte) {
  const std::string good = Good();
  for (size_t i = 0; i < good.size(); ++i) {
    for (const char change : {'\x01', '\x80'}) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ change);
      EXPECT_EQ(ErrorOf(bad), "slot.corrupt") << "byte " << i;
    }
  }
}

TEST_F(SlotFileTest, NoticesEveryOtherLength) {
  const std::string good = Good();
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_EQ(ErrorOf(good.substr(0, length)), "slot.corrupt") << length;
  }
  EXPECT_EQ(ErrorOf(good + '\0'), "slot.corrupt");
}

// Sizes are refused before the sum is computed: numbers of 32 and 64 bits anywhere in the header,
// with a sum that agrees.
TEST_F(SlotFileTest, RefusesSizesThatCannotBe) {
  const std::string good = Good();
  const auto with_sum = [](std::string bytes) {
    bytes.resize(bytes.size() - sizeof(Sha256Digest));
    const Sha256Digest sum = Sha256(bytes);
    return bytes.append(sum.begin(), sum.end());
  };
  ASSERT_EQ(ErrorOf(with_sum(good)), "none");
  const size_t tokens = good.find(std::string("\x05\0\0\0\x02\0\0\0", 8));
  ASSERT_NE(tokens, std::string::npos);
  const size_t rows = good.find("f16[1,4]") + 8;
  const size_t chunked = tokens - 4;
  const size_t snapshots = tokens + 4 + 20;
  for (const size_t at : {size_t{12}, size_t{16}, size_t{20}, size_t{24}, chunked, tokens,
                          snapshots, snapshots + 4, snapshots + 8, snapshots + 12, snapshots + 16,
                          rows, rows + 4, rows + 8, rows + 12, rows + 16, rows + 20}) {
    std::string bad = good;
    bad.replace(at, 4, "\xff\xff\xff\xff");
    EXPECT_EQ(ErrorOf(with_sum(bad)), "slot.corrupt") << at;
  }
}

// A file of the corpus of the fuzz target, which was written by another program.
TEST_F(SlotFileTest, ReadsTheBytesThatTheFormatSays) {
  const StoredSlot read = Must(ReadSlotFile(RULLAMA_SOURCE_DIR "/tests/fuzz/corpus/snapshot/slot"));
  EXPECT_EQ(read.owner, Sha256("ann"));
  EXPECT_EQ(read.tokens, ExampleSlot().tokens);
  EXPECT_EQ(read.all->info().parts, ExampleSlot().all->info().parts);
  EXPECT_EQ(read.rings.size(), 2U);
}

TEST_F(SlotFileTest, WritesOnlySnapshotsThatBelongTogether) {
  StoredSlot few_tokens = ExampleSlot();
  few_tokens.tokens.pop_back();
  StoredSlot beyond = ExampleSlot();
  beyond.chunked = 3;
  StoredSlot partial = ExampleSlot();
  partial.all = partial.rings.front();
  for (const StoredSlot& wrong : {few_tokens, beyond, partial}) {
    EXPECT_EQ(SlotFileWriter(wrong).Write(path_).error().id, "session.internal");
  }
  EXPECT_FALSE(std::filesystem::exists(path_));
}

}  // namespace
}  // namespace rullama
