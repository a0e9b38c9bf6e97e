// docs/backend-options.md names the options that each backend reads, and so does the backend's own
// error.
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <set>
#include <string>

#include "tests/docs/source_text.h"
#include "tests/gpu_backends.h"

namespace rullama {
namespace {

std::set<std::string> AllMatches(const std::string& text, const std::string& pattern) {
  std::set<std::string> found;
  const std::regex expression(pattern);
  for (std::sregex_iterator at(text.begin(), text.end(), expression), end; at != end; ++at) {
    found.insert((*at)[1]);
  }
  return found;
}

// The options that the sources of a backend read. GPU backends share a table (gpu/options.h), which
// writes its own error (options_test.cc).
std::set<std::string> OptionsReadBy(const std::string& backend) {
  const std::string source = ReadText(SourceDirectory() / "backends" / backend / "backend.cc");
  if (source.find("gpu::Options") == std::string::npos) {
    return AllMatches(source, R"re(key == "([a-z_]+)")re");
  }
  const std::string common = ReadText(SourceDirectory() / "backends/gpu/options.cc");
  return AllMatches(source + common, R"re(\bAdd(?:Switch)?\(\s*"([a-z_]+)")re");
}

class BackendOptions : public ::testing::TestWithParam<const char*> {
 protected:
  const std::string backend_ = GetParam();
};

TEST_P(BackendOptions, AreTheOnesThatTheBackendReads) {
  const std::set<std::string> read = OptionsReadBy(backend_);
  ASSERT_GE(read.size(), 4u);

  const std::string page = ReadText(SourceDirectory() / "docs/backend-options.md");
  const size_t begin = page.find("\n## " + backend_ + "\n");
  ASSERT_NE(begin, std::string::npos);
  const std::string section = page.substr(begin, page.find("\n## ", begin + 1) - begin);
  EXPECT_EQ(AllMatches(section, R"re(\n\| `([a-z_]+)` \|)re"), read);
}

TEST(BackendOptionsOfTheCpu, AreTheOnesThatItsErrorNames) {
  const std::string source = ReadText(SourceDirectory() / "backends/cpu/backend.cc");
  // Literals that follow each other are one text.
  const std::string joined = std::regex_replace(source, std::regex("\"\\s*\n\\s*\""), "");
  std::smatch known;
  ASSERT_TRUE(std::regex_search(joined, known, std::regex("backend knows: ([a-z_, ]+)\"")));
  EXPECT_EQ(AllMatches(known.str(1), "([a-z_]+)"), OptionsReadBy("cpu"));
}

TEST_P(BackendOptions, RowsHaveAsManyCellsAsTheirTable) {
  const std::string page = ReadText(SourceDirectory() / "docs/backend-options.md");
  const size_t begin = page.find("\n## " + backend_ + "\n");
  ASSERT_NE(begin, std::string::npos);
  std::istringstream lines(page.substr(begin + 1, page.find("\n## ", begin + 1) - begin));
  std::ptrdiff_t bars = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("|")) continue;
    const std::ptrdiff_t count = std::ranges::count(line, '|');
    if (bars == 0) bars = count;
    EXPECT_EQ(count, bars) << line;
  }
  EXPECT_GT(bars, 0);
}

INSTANTIATE_TEST_SUITE_P(All, BackendOptions, ::testing::ValuesIn(BackendNames()), kBackendName);

}  // namespace
}  // namespace rullama
