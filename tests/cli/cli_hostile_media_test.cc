// Hostile pictures and sounds from outside: each is refused with its error, or taken.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>
#include <string>

#include "media/hostile_files_test_util.h"
#include "tests/cli/program.h"

namespace rullama::cli_test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class HostileMedia : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    const auto config = TemporaryFile("hostile_media.yaml",
                                      "architecture:\n"
                                      "  width: 256\n"
                                      "  vision: {layers: 0, width: 16, patch: 4, positions: 64}\n"
                                      "  audio: {layers: 0}\n");
    const RunResult made =
        RunRullama({"synth", "--config", config.string(), "--mmproj-out", Towers()});
    ASSERT_EQ(made.exit_code, 0) << made.err;
  }
  static std::string Towers() { return (TemporaryDirectory() / "hostile_media.gguf").string(); }
  static RunResult Run(MediaKind kind, const std::string& path) {
    return RunRullama({"run", "-m", TinyModel(), "--mmproj", Towers(), "-n", "1",
                       kind == MediaKind::kPicture ? "--image" : "--audio", path, "What is it?"});
  }
  // Every line is the program's own: no library writes to the stream.
  static void ExpectOwnLines(const std::string& err) {
    std::istringstream lines(err);
    for (std::string line; std::getline(lines, line);) EXPECT_THAT(line, StartsWith("rullama: "));
  }
};

TEST_F(HostileMedia, IsRefusedWithItsError) {
  for (const HostileFile& file : HostileFiles()) {
    SCOPED_TRACE(file.name);
    const RunResult run = Run(file.kind, TemporaryFile("hostile", file.bytes).string());
    ExpectOwnLines(run.err);
    EXPECT_EQ(run.exit_code, file.error.empty() ? 0 : 2) << run.err;
    if (file.error.empty()) continue;
    EXPECT_THAT(run.err, HasSubstr("[" + std::string(file.error) + "]"));
  }
}

TEST_F(HostileMedia, FilesThatAreNoneAreRefused) {
  const auto huge = TemporaryFile("huge", "");
  std::filesystem::resize_file(huge, 200'000'000);
  const RunResult zeros = Run(MediaKind::kPicture, huge.string());
  std::filesystem::remove(huge);
  EXPECT_EQ(zeros.exit_code, 2);
  EXPECT_THAT(zeros.err, HasSubstr("[media.format]"));
  EXPECT_LT(zeros.max_resident_bytes, 200'000'000);
  const RunResult empty = Run(MediaKind::kSound, TemporaryFile("hostile", "").string());
  EXPECT_EQ(empty.exit_code, 2);
  EXPECT_THAT(empty.err, HasSubstr("[media.format]"));
  EXPECT_EQ(Run(MediaKind::kPicture, "/no/such/picture.png").exit_code, 6);
  EXPECT_EQ(Run(MediaKind::kPicture, TemporaryDirectory().string()).exit_code, 6);
}

}  // namespace
}  // namespace rullama::cli_test
