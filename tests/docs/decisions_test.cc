// Tests that the decision records have numbers of their own.
#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <string>

#include "tests/docs/source_text.h"

namespace rullama {
namespace {

namespace fs = std::filesystem;

TEST(Decisions, HaveNumbersOfTheirOwn) {
  static const std::regex kName(R"((\d{4})-[a-z0-9-]+\.md)");
  std::map<std::string, std::string> records;  // number -> name
  for (const auto& entry : fs::directory_iterator(SourceDirectory() / "docs/adr")) {
    const std::string name = entry.path().filename().string();
    std::smatch parts;
    const bool matches = std::regex_match(name, parts, kName);
    EXPECT_TRUE(matches) << name << ", expected NNNN-words.md";
    if (!matches) continue;
    const std::string number = parts[1];
    const auto [record, added] = records.try_emplace(number, name);
    EXPECT_TRUE(added) << name << " has the number of " << record->second;
    EXPECT_TRUE(ReadText(entry.path()).starts_with("# " + number + ": ")) << name;
  }
  EXPECT_GT(records.size(), 30u);
}

}  // namespace
}  // namespace rullama
