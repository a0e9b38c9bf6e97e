// Files of snapshots: what was written is read again, and nothing else is taken for a snapshot.
#include "core/runtime/snapshot_file.h"

#include <gmock/gmock.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <string>

#include "core/base/must_test_util.h"
#include "core/base/read_file_test_util.h"
#include "core/gguf/gguf_writer.h"

namespace rullama {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

StoredSnapshot Example(SnapshotContent content = SnapshotContent::kAll) {
  SnapshotInfo info{.content = content, .position = 5, .written = 6};
  info.parts = {{"kv.0", "f16[1,4]", 8, 4, 4}, {"sampler.history", "i32[]", 4, 16, 6}};
  Snapshot snapshot = Must(Snapshot::Allocate(std::move(info)));
  for (size_t i = 0; i < snapshot.bytes(); ++i) snapshot.data()[i] = static_cast<std::byte>(i * 7);
  return {std::move(snapshot), {2, 11, 12, 13, 14}, {3, 4}};
}

class SnapshotFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    path_ = ::testing::TempDir() + "snapshot_" + test->name();
  }
  void TearDown() override { std::filesystem::remove(path_); }

  [[nodiscard]] std::string ReadBytes() const { return ReadWholeFile(path_); }
  void WriteBytes(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary) << bytes;
  }
  // The id of the error that reading gives, and its message.
  [[nodiscard]] std::string ErrorOf() const {
    const auto read = ReadSnapshot(path_);
    return read ? "none" : read.error().ToString();
  }

  std::string path_;
};

TEST_F(SnapshotFileTest, ReadsWhatWasWritten) {
  const StoredSnapshot stored = Example();
  ASSERT_TRUE(WriteSnapshot(stored, path_));
  const StoredSnapshot read = Must(ReadSnapshot(path_));
  EXPECT_THAT(read.tokens, ElementsAreArray(stored.tokens));
  EXPECT_EQ(read.model, stored.model);
  EXPECT_EQ(read.snapshot.position(), 5);
  EXPECT_EQ(read.snapshot.info().written, 6);
  EXPECT_TRUE(read.snapshot.complete());
  EXPECT_EQ(read.snapshot.info().parts, stored.snapshot.info().parts);
  EXPECT_THAT(read.snapshot.data(), ElementsAreArray(stored.snapshot.data()));
}

TEST_F(SnapshotFileTest, StoresOnlyCompleteSnapshots) {
  const auto rings = WriteSnapshot(Example(SnapshotContent::kRings), path_);
  ASSERT_FALSE(rings);
  EXPECT_THAT(rings.error().message, HasSubstr("a partial snapshot"));
  StoredSnapshot short_of_one = Example();
  short_of_one.tokens.pop_back();
  EXPECT_FALSE(WriteSnapshot(short_of_one, path_));
  EXPECT_FALSE(std::filesystem::exists(path_));
}

// Each byte is a number, a name or padding; all but the padding count.
TEST_F(SnapshotFileTest, NoticesEveryChangedByte) {
  ASSERT_TRUE(WriteSnapshot(Example(), path_));
  const std::string good = ReadBytes();
  int unnoticed = 0;
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x21);
    WriteBytes(bad);
    if (ErrorOf() == "none") {
      ++unnoticed;
      EXPECT_EQ(good[i], 0) << "byte " << i << " is not padding";
    }
  }
  EXPECT_LT(unnoticed, 96) << "more than the padding of three sections";
}

TEST_F(SnapshotFileTest, NoticesAMissingEnd) {
  ASSERT_TRUE(WriteSnapshot(Example(), path_));
  const std::string good = ReadBytes();
  for (const size_t length : {size_t{0}, size_t{3}, size_t{40}, good.size() / 2}) {
    WriteBytes(good.substr(0, length));
    EXPECT_NE(ErrorOf(), "none") << length;
  }
}

TEST_F(SnapshotFileTest, SaysWhatItFound) {
  EXPECT_THAT(ErrorOf(), HasSubstr("io.open"));
  GgufWriter model;
  ASSERT_TRUE(model.Set("general.architecture", "gemma4"));
  ASSERT_TRUE(Must(model.Begin(path_)).Finish());
  EXPECT_THAT(ErrorOf(), HasSubstr("found a file of type 'model', expected a snapshot"));
  ASSERT_TRUE(model.Set("general.type", "snapshot"));
  ASSERT_TRUE(model.Set("snapshot.version", uint32_t{9}));
  ASSERT_TRUE(Must(model.Begin(path_)).Finish());
  EXPECT_THAT(ErrorOf(), HasSubstr("found version 9 of the format, expected 1"));
}

}  // namespace
}  // namespace rullama
