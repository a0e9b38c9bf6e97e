#include "cli/eval/log_prob_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "core/base/must_test_util.h"
#include "core/base/read_file_test_util.h"

namespace rullama::cli {
namespace {

constexpr int64_t kVocabulary = 5;  // odd: a row has a value that stands for no token

LogProbHeader Header() {
  LogProbHeader header{.context = 6, .vocabulary = kVocabulary, .chunks = 2};
  header.tokens = {0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1};
  return header;
}

std::vector<float> Logits(int row) {
  std::vector<float> logits(kVocabulary);
  for (size_t i = 0; i < logits.size(); ++i) {
    logits[i] = 3 * std::sin(static_cast<float>(static_cast<int>(i) + 7 * row));
  }
  return logits;
}

std::filesystem::path WriteOne() {
  const auto path = std::filesystem::path(::testing::TempDir()) / "values.kld";
  LogProbWriter writer = Must(LogProbWriter::Create(path, Header()));
  for (int row = 0; row < 4; ++row) EXPECT_TRUE(writer.Append(Logits(row)));
  EXPECT_TRUE(writer.Finish());
  return path;
}

TEST(LogProbFile, ValuesComeBack) {
  const LogProbFile file = Must(LogProbFile::Open(WriteOne()));
  const LogProbHeader& header = file.rows().header();
  EXPECT_EQ(header.counted(), 2);
  EXPECT_EQ(header.first_counted(), 4);
  EXPECT_EQ(header.tokens, Header().tokens);
  for (int row = 0; row < 4; ++row) {
    const std::vector<float> logits = Logits(row);
    double sum = 0;
    for (const float x : logits) sum += std::exp(x);
    const LogProbRow found = Must(file.rows().Row(row / 2, row % 2));
    for (size_t i = 0; i < logits.size(); ++i) {
      EXPECT_NEAR(found.At(i), logits[i] - std::log(sum), 2e-4) << row << " " << i;
    }
  }
}

TEST(LogProbFile, WhatIsFarBelowTheBestHasNoSteps) {
  const auto path = std::filesystem::path(::testing::TempDir()) / "far.kld";
  LogProbHeader header{.context = 3, .vocabulary = 3, .chunks = 1, .tokens = {0, 1, 2}};
  LogProbWriter writer = Must(LogProbWriter::Create(path, header));
  ASSERT_TRUE(writer.Append(std::vector<float>{0, -40, -INFINITY}));
  ASSERT_TRUE(writer.Finish());
  const LogProbFile file = Must(LogProbFile::Open(path));
  const LogProbRow row = Must(file.rows().Row(0, 0));
  EXPECT_NEAR(row.At(0), 0, 1e-4);
  EXPECT_NEAR(row.At(1), -16, 1e-4);
  EXPECT_NEAR(row.At(2), -16, 1e-4);
}

TEST(LogProbFile, DamagedFilesAreErrors) {
  const std::string whole = ReadWholeFile(WriteOne());
  const auto parse = [](std::string_view bytes) {
    return LogProbRows::Parse(std::as_bytes(std::span(bytes)));
  };
  ASSERT_TRUE(parse(whole));
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(parse(whole.substr(0, size))) << size;
  }
  EXPECT_FALSE(parse(whole + "x"));
  for (const size_t at : {0U, 8U, 12U, 16U}) {  // the magic and the three sizes
    for (const char byte : {'\x00', '\x7f', '\xff'}) {
      std::string damaged = whole;
      damaged[at + 3] = byte;
      if (damaged == whole) continue;
      EXPECT_FALSE(parse(damaged)) << at;
    }
  }
  std::string damaged = whole;
  damaged[20] = '\x05';  // a token outside the vocabulary
  EXPECT_FALSE(parse(damaged));
}

TEST(LogProbFile, DamagedRowsAreErrors) {
  const std::string whole = ReadWholeFile(WriteOne());
  const size_t begin = 20 + Header().tokens.size() * sizeof(int32_t);  // of the first row
  const auto row_with = [&](size_t at, float value) {
    std::string damaged = whole;
    std::memcpy(damaged.data() + begin + at, &value, sizeof(value));
    const LogProbRows rows = Must(LogProbRows::Parse(std::as_bytes(std::span(damaged))));
    EXPECT_TRUE(rows.Row(0, 1)) << "the second row is whole";
    return rows.Row(0, 0).has_value();
  };
  for (const float step : {3e38F, -1e-4F, 1.0F, NAN, INFINITY}) EXPECT_FALSE(row_with(0, step));
  for (const float lowest : {1.0F, NAN, INFINITY, -INFINITY}) EXPECT_FALSE(row_with(4, lowest));
  EXPECT_TRUE(row_with(0, 0));
  EXPECT_TRUE(row_with(4, -100));
}

TEST(LogProbFile, NothingIsLeftAfterAnError) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / "log_probs_after_errors";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  for (const float logit : {INFINITY, NAN}) {
    LogProbWriter writer = Must(LogProbWriter::Create(folder / "x.kld", Header()));
    ASSERT_TRUE(writer.Append(Logits(0)));
    const Status refused = writer.Append(std::vector<float>{0, logit, 1, 2, 3});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().id, "backend.nan");
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  const std::string damaged = (folder / "damaged.kld").string();
  std::ofstream(damaged) << "x";
  const auto opened = LogProbFile::Open(damaged);
  ASSERT_FALSE(opened);
  EXPECT_NE(opened.error().message.find(damaged), std::string::npos) << opened.error().message;
}

}  // namespace
}  // namespace rullama::cli
