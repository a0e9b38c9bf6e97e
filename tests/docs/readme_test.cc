// Tests that README.md and the index of docs/ are true of the tree.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>
#include <string>
#include <vector>

#include "models/quantize/quant_mix.h"
#include "tests/docs/source_text.h"

namespace rullama {
namespace {

namespace fs = std::filesystem;

std::string Readme() { return ReadText(SourceDirectory() / "README.md"); }

// The text from a heading to the next one of its level.
std::string Section(const std::string& page, const std::string& heading) {
  const size_t begin = page.find("\n" + heading + "\n");
  EXPECT_NE(begin, std::string::npos) << heading;
  if (begin == std::string::npos) return {};
  return page.substr(begin, page.find("\n## ", begin + 1) - begin);
}

std::set<std::string> Matches(const std::string& text, const std::string& pattern) {
  std::set<std::string> found;
  const std::regex expression(pattern);
  for (std::sregex_iterator at(text.begin(), text.end(), expression), end; at != end; ++at) {
    found.insert((*at)[1]);
  }
  return found;
}

// Folders that hold sources; neither hidden ones nor builds.
std::set<std::string> Folders(const fs::path& parent) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(parent)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_directory() && name[0] != '.' && !name.starts_with("build")) names.insert(name);
  }
  return names;
}

TEST(Readme, NamesEachFolder) {
  const std::string section = Section(Readme(), "## Folders");
  for (const std::string& name : Folders(SourceDirectory())) {
    EXPECT_NE(section.find("`" + name + "/"), std::string::npos) << name;
  }
  for (const std::string& name : Matches(section, "`([a-z_0-9/]+)/`")) {
    EXPECT_TRUE(fs::is_directory(SourceDirectory() / name)) << name;
  }
}

// The folder `gpu` is shared by backends, and `reference` is part of the core.
TEST(Readme, NamesEachBackend) {
  const std::string text = Readme();
  const size_t item = text.find("\n- Backends: ");
  ASSERT_NE(item, std::string::npos);
  const std::string backends = text.substr(item, text.find("\n- ", item + 1) - item);
  std::set<std::string> expected = Folders(SourceDirectory() / "backends");
  EXPECT_EQ(expected.erase("gpu"), 1u);
  expected.insert("reference");
  EXPECT_EQ(Matches(backends, "`([a-z0-9_]+)`"), expected);
}

TEST(Readme, NamesEachCommand) {
  std::set<std::string> commands;
  for (const auto& entry : fs::directory_iterator(SourceDirectory() / "cli/commands")) {
    if (entry.path().extension() != ".cc") continue;
    commands.merge(Matches(ReadText(entry.path()), R"re(add_subcommand\(\s*"([a-z-]+)")re"));
  }
  ASSERT_TRUE(commands.contains("run"));
  std::set<std::string> named;
  const std::string section = Section(Readme(), "## Using it");
  const size_t table = section.find("| command | does |");
  ASSERT_NE(table, std::string::npos);
  std::istringstream lines(section.substr(table, section.find("\n\n", table) - table));
  for (std::string line; std::getline(lines, line);) {
    const size_t end = line.find(" | ", 2);
    named.merge(Matches(line.substr(0, end), "`([a-z-]+)[^`]*`"));
  }
  EXPECT_EQ(named, commands);
}

TEST(Readme, ListsTheTypesOfQuantize) {
  EXPECT_NE(
      Readme().find("| `quantize` | writes a model in a smaller type: " + QuantMixNames() + " |"),
      std::string::npos)
      << "expected: " << QuantMixNames();
}

TEST(Readme, GivesTheSizesOfTheConfigurations) {
  const std::string section = Section(Readme(), "## Memory and speed");
  for (const auto& entry : fs::directory_iterator(SourceDirectory() / "configs")) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("tiny")) continue;
    const std::string text = std::regex_replace(ReadText(entry.path()), std::regex("\n# "), " ");
    std::smatch size;
    ASSERT_TRUE(std::regex_search(
        text, size, std::regex("about ([0-9.]+ GB) in (Q4_K_M|Q8_0)", std::regex::icase)))
        << name;
    const std::string type = size.str(2) == "Q4_K_M" ? "" : " (" + size.str(2) + ")";
    EXPECT_NE(section.find("| " + size.str(1) + type + " | [`configs/" + name + "`]"),
              std::string::npos)
        << name << ": " << size.str(1);
  }
}

TEST(Readme, ItsCommandsInstallWhatTheyNeed) {
  const std::string section = Section(Readme(), "## Two commands");
  const auto commands = Matches(section, "\n(tools/install-deps.sh [^ \n]+) ");
  EXPECT_EQ(commands, (std::set<std::string>{"tools/install-deps.sh --minimal",
                                             "tools/install-deps.sh --tests"}));
}

TEST(Documents, TheIndexNamesEachPage) {
  const std::string index = ReadText(SourceDirectory() / "docs/README.md");
  for (const auto& entry : fs::directory_iterator(SourceDirectory() / "docs")) {
    const std::string name = entry.path().filename().string();
    if (name == "README.md" || entry.path().extension() != ".md") continue;
    EXPECT_NE(index.find("(" + name + ")"), std::string::npos) << name;
  }
}

// The pages of the root, of docs/ and of the folders of components.
std::vector<fs::path> Pages() {
  std::vector<fs::path> pages;
  const auto add = [&pages](const fs::path& file) {
    if (file.extension() == ".md") pages.push_back(file);
  };
  for (const auto& entry : fs::directory_iterator(SourceDirectory())) add(entry.path());
  for (const char* folder : {"docs", "core", "media", "models", "samplers", "engine", "server",
                             "downloads", "cli", "python", "backends", "conformance"}) {
    for (const auto& entry : fs::recursive_directory_iterator(SourceDirectory() / folder)) {
      add(entry.path());
    }
  }
  return pages;
}

TEST(Documents, LinksLeadSomewhere) {
  int links = 0;
  for (const fs::path& page : Pages()) {
    for (const std::string& link :
         Matches(ReadText(page), R"re(\]\(([^)#:\s]+)(?:#[^)\s]*)?\))re")) {
      EXPECT_TRUE(fs::exists(page.parent_path() / link)) << page << ": " << link;
      ++links;
    }
  }
  EXPECT_GT(links, 50);
}

// Paths in backticks, such as `core/abi/ops.def`, of any page; `core/passes/decompose` may stand
// for a header or source of that name. Words in capitals are placeholders.
TEST(Documents, PathsInBackticksExist) {
  int paths = 0;
  for (const fs::path& page : Pages()) {
    for (const std::string& path :
         Matches(ReadText(page),
                 "`((?:core|media|models|samplers|engine|downloads|backends|cli|conformance|"
                 "configs|tests|bench|tools|cmake|docs|[.]ci|"
                 "[.]github)/[A-Za-z0-9_./-]+)`")) {
      if (std::regex_search(path, std::regex("[A-Z]{2}"))) continue;
      const fs::path file = SourceDirectory() / path;
      EXPECT_TRUE(fs::exists(file) || fs::exists(file.string() + ".h") ||
                  fs::exists(file.string() + ".cc"))
          << page << ": " << path;
      ++paths;
    }
  }
  EXPECT_GT(paths, 50);
}

}  // namespace
}  // namespace rullama
