// Scarce resources, and sparse files that claim more than there is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/cli/program.h"

namespace rullama::cli_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kMaxResident = int64_t{300} << 20;
constexpr uintmax_t kSparseBytes = uintmax_t{16} << 30;

std::string Field(uint64_t value, size_t bytes) {
  std::string text;
  for (size_t i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i));
  return text;
}

// One metadata entry, `head` after its key, in a file of 16 GiB that takes 4 KiB of the disk.
std::string SparseFile(const std::string& name, const std::string& head) {
  const auto path = TemporaryFile(
      name, "GGUF" + Field(3, 4) + Field(0, 8) + Field(1, 8) + Field(1, 8) + "a" + head);
  std::filesystem::resize_file(path, kSparseBytes);
  return path.string();
}

TEST(Limits, SparseFilesAreRefusedAtOnce) {
  constexpr uint32_t kString = 8;
  constexpr uint32_t kArray = 9;
  const std::string files[] = {
      SparseFile("strings.gguf",
                 Field(kArray, 4) + Field(kString, 4) + Field((kSparseBytes - 200) / 8, 8)),
      SparseFile("string.gguf", Field(kString, 4) + Field(kSparseBytes - 200, 8)),
      SparseFile("bytes.gguf", Field(kArray, 4) + Field(0, 4) + Field(kSparseBytes - 200, 8)),
  };
  RunOptions options;
#if !RULLAMA_SANITIZED
  options.limits = "-v 18000000";  // kB: for the mapping and little else; protects the machine
#endif
  const std::string ids = TemporaryFile("ids", "2,5").string();
  for (const std::string& file : files) {
    for (const std::vector<std::string>& words :
         {std::vector<std::string>{"inspect", file},
          {"-m", file, "--raw", "-p", "x"},
          {"tokenize", "-m", file, "-p", "x"},
          {"logits", "-m", file, "--tokens-file", ids, "--out", "/dev/null"}}) {
      const RunResult result = RunRullama(words, options);
      EXPECT_EQ(result.exit_code, 4) << result.err;
      EXPECT_THAT(result.err, HasSubstr("[gguf."));
      EXPECT_LT(result.max_resident_bytes, kMaxResident);
    }
    std::filesystem::remove(file);
  }
}

#if !RULLAMA_SANITIZED  // sanitizers need more memory and descriptors than these limits leave
TEST(Limits, TooFewDescriptorsAreNamed) {
  RunOptions options;
  bool named = false;
  for (int descriptors = 4; descriptors <= 8; ++descriptors) {
    options.limits = "-n " + std::to_string(descriptors);
    const RunResult result =
        RunRullama({"-m", TinyModel(), "--raw", "-p", "x", "-n", "1"}, options);
    if (result.exit_code == 0 || result.err.empty()) continue;
    // The system's loader fails before the program begins.
    if (result.err.find("while loading shared libraries") != std::string::npos) continue;
    named = named || result.err.find("Too many open files") != std::string::npos;
    EXPECT_THAT(result.err, HasSubstr("Too many open files")) << descriptors;
  }
  EXPECT_TRUE(named);
}

TEST(Limits, RefusedThreadsAreNamed) {
  RunOptions options;
  options.limits = "-v 400000 && ulimit -s 1000000";  // each thread wants as much as all may have
  const RunResult result =
      RunRullama({"-m", TinyModel(), "--raw", "-p", "x", "-n", "1", "-t", "8"}, options);
  EXPECT_EQ(result.exit_code, 3) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("of 8 threads"), HasSubstr("ulimit -u")));
}

TEST(Limits, ASmallStackIsNamed) {
  RunOptions options;
  bool crashed = false;
  for (const int kilobytes : {32, 48, 64, 96, 128}) {
    options.limits = "-s " + std::to_string(kilobytes);
    const RunResult result =
        RunRullama({"-m", TinyModel(), "--raw", "-p", "x", "-n", "1"}, options);
    // Smaller ones end before main, where nobody can say anything.
    if (result.exit_code == 0 || result.err.find("rullama") == std::string::npos) continue;
    crashed = crashed || result.exit_code > 128;
    if (result.exit_code > 128) {
      EXPECT_THAT(result.err, HasSubstr("ulimit -s")) << kilobytes;
    }
  }
  EXPECT_TRUE(crashed);
}
#endif

}  // namespace
}  // namespace rullama::cli_test
