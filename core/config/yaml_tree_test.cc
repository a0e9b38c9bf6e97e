#include "core/config/yaml_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace rullama {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string Repeat(std::string_view text, size_t times) {
  std::string result;
  for (size_t i = 0; i < times; ++i) result += text;
  return result;
}

struct BadYaml {
  const char* what;
  std::string text;
  const char* id;
  const char* message;  // how it begins; in lists that never end, yaml-cpp's depth is not exact
};

TEST(YamlTree, RefusesWithIdAndPosition) {
  const BadYaml rows[] = {
      {"tab indent", "a:\n\tb: 1\n", "config.syntax", "x:2:1: tab in the indentation"},
      {"tab after spaces", "a:\n  \tb: 1\n", "config.syntax", "x:2:3: tab in the indentation"},
      {"tab on a blank line", "a: 1\n \t\nb: 2\n", "config.syntax", "x:2:2: tab in the"},
      {"duplicate key", "a: 1\nb: 2\na: 3\n", "config.duplicate_key",
       "x:3:1: key 'a' is given twice, first at line 1"},
      {"duplicate in flow map", "m: {k: 1, k: 2}\n", "config.duplicate_key", "x:1:11: key 'k'"},
      {"plain and quoted spelling", "a: 1\n'a': 2\n", "config.duplicate_key", "x:2:1: "},
      {"alias bomb", "a: &x [1]\nb: [*x, *x]\n", "config.limit", "x:1:4: anchors"},
      {"anchor of nothing", "a: &x\n", "config.limit", "x:1:4: anchors"},
      {"alias without anchor", "a: *x\n", "config.syntax", "x:1:4: not valid YAML: "},
      {"10,000 lists", "a: " + Repeat("[", 10000), "config.limit", "x:1:"},
      {"10,000 maps", Repeat("{a: ", 10000), "config.limit", "x:1:"},
      {"10,000 block lists", Repeat("- ", 10000), "config.limit", "x:1:65: nested deeper"},
      {"33 lists", Repeat("[", 33) + Repeat("]", 33), "config.limit", "x:1:33: nested deeper"},
      {"over 1 MiB", std::string(kMaxYamlBytes + 1, ' '), "config.limit",
       "x: the file has 1048577 bytes"},
      {"too many values", "[" + Repeat("1,", kMaxYamlNodes + 1) + "]", "config.limit",
       "x:1:131072: more than 65536 values"},
      {"second document", "a: 1\n---\nb: 2\n", "config.syntax", "x:2:1: a second document"},
      {"open list", "a: [1, 2\n", "config.syntax", "x:2:1: not valid YAML: "},
      {"two values", "a: b: c\n", "config.syntax", "x:1:5: not valid YAML: "},
      {"bad indent", "a: 1\n  b: 2\n", "config.syntax", "x:2:4: not valid YAML: "},
      {"tag", "a: !!str 5\n", "config.syntax", "x:1:4: tags"},
      {"list as key", "? [1]\n: 2\n", "config.syntax", "x:1:3: a key must be a name, found a list"},
      {"null as key", "~: 2\n", "config.syntax", "x:1:1: a key must be a name, found nothing"},
      {"Latin-1", "a: 1\nb: caf\xe9\n", "config.encoding", "x:2:7: not UTF-8"},
      {"UTF-16",
       std::string("\xff\xfe"
                   "a\0",
                   4),
       "config.encoding", "x:1:1: not UTF-8"},
      {"escape that yaml-cpp gets wrong", "a: \"x\\Ny\"\n", "config.encoding",
       "x:1:4: the escapes \\N and \\_"},
      {"NUL", std::string("a: 1\nb\0: 2", 10), "config.encoding", "x:2:2: control character 0x00"},
      // yaml-cpp takes 0x04 for the end of the input and would ignore the rest.
      {"EOT", "a: 1\n\x04\nb: 2\n", "config.encoding", "x:2:1: control character 0x04"},
  };
  for (const BadYaml& row : rows) {
    SCOPED_TRACE(row.what);
    const auto tree = ParseYamlTree(row.text, "x");
    ASSERT_FALSE(tree.has_value());
    EXPECT_EQ(tree.error().kind, ErrorKind::kUsage);
    EXPECT_EQ(tree.error().id, row.id);
    EXPECT_THAT(tree.error().message, StartsWith(row.message));
  }
}

TEST(YamlTree, KeepsTextPositionsAndQuoting) {
  const auto tree = ParseYamlTree("a: 5\nlist: [x, \"5\"]\nempty:\n", "x");
  ASSERT_TRUE(tree.has_value()) << tree.error().ToString();
  ASSERT_EQ(tree->kind, YamlNode::Kind::kMap);
  ASSERT_EQ(tree->entries.size(), 3u);
  const YamlEntry& a = tree->entries[0];
  EXPECT_EQ(a.key.text, "a");
  EXPECT_EQ(a.value.text, "5");
  EXPECT_FALSE(a.value.quoted);
  EXPECT_EQ(a.value.line, 1);
  EXPECT_EQ(a.value.column, 4);
  const YamlNode& list = tree->entries[1].value;
  ASSERT_EQ(list.items.size(), 2u);
  EXPECT_TRUE(list.items[1].quoted);
  EXPECT_EQ(list.items[1].line, 2);
  EXPECT_EQ(list.items[1].column, 11);
  EXPECT_EQ(tree->entries[2].value.kind, YamlNode::Kind::kNull);
}

TEST(YamlTree, AcceptsWhatIsHarmless) {
  const std::string deepest = Repeat("[", kMaxYamlDepth) + Repeat("]", kMaxYamlDepth);
  for (const std::string& text :
       {std::string(), std::string("# only a comment\n"),
        std::string("\xef\xbb\xbf"
                    "a: 1\n"),
        std::string("a: 1\r\nb: 2\r\n"), std::string("---\na: 1\n...\n"), deepest,
        std::string("a: \"tab\\tinside\"\n"), std::string("a: 1\t# comment\n")}) {
    const auto tree = ParseYamlTree(text, "x");
    EXPECT_TRUE(tree.has_value()) << QuoteForMessage(text) << tree.error().ToString();
  }
}

// One megabyte of anything is answered, whatever is in it. What takes a time that grows with the
// square of the size does not end within the limit of ctest.
TEST(YamlTree, LargeInputsAreAnswered) {
  std::string distinct_keys;
  for (size_t i = 0; distinct_keys.size() < kMaxYamlBytes - 16; ++i) {
    distinct_keys += "k" + std::to_string(i) + ": 1\n";
  }
  const std::string unit[] = {
      "[",   "{",  "- ",    "? ",  "a: ",          "{a: ", "\"",      "'",   "|\n",
      "a\n", ": ", "&a ",   "*a ", "!a ",          "% \n", "---\n",   "\n",  " ",
      "a",   "#",  "- a\n", "[],", "\xe2\x96\x81", "!<",   "a: |\n ", "\\\n"};
  std::vector<std::string> texts = {distinct_keys};
  for (const std::string& piece : unit) {
    texts.push_back(Repeat(piece, kMaxYamlBytes / piece.size()));
    texts.push_back("a: " + Repeat(piece, (kMaxYamlBytes - 3) / piece.size()));
  }
  for (const std::string& text : texts) {
    const auto tree = ParseYamlTree(text, "x");
    EXPECT_TRUE(tree.has_value() || tree.error().id.starts_with("config."));
  }
}

TEST(YamlTree, MessagesStayOnOneShortLine) {
  EXPECT_EQ(QuoteForMessage("a\nb"), "'a\\x0ab'");
  EXPECT_EQ(QuoteForMessage("\xff"), "'\\xff'");
  EXPECT_EQ(QuoteForMessage("gr\xc3\xbc\xc3\x9f"), "'gr\xc3\xbc\xc3\x9f'");
  EXPECT_LT(QuoteForMessage(std::string(1000, 'x')).size(), 64u);
  EXPECT_THAT(QuoteForMessage(std::string(1000, 'x')), HasSubstr("..."));
}

}  // namespace
}  // namespace rullama
