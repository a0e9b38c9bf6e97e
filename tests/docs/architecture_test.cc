// Tests that components include only what tests/docs/includes.txt lists, without cycles.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/docs/source_text.h"

namespace rullama {
namespace {

namespace fs = std::filesystem;

constexpr const char* kList = "tests/docs/includes.txt";

using Includes = std::map<std::string, std::set<std::string>>;

// "core/ir" of "core/ir/graph.h", "models/gemma4/chat" of "models/gemma4/chat/text.h", "models" of
// "models/registry.h", "cli" of "cli/main.cc".
std::string ComponentOf(const std::string& file) {
  const fs::path folder = fs::path(file).parent_path();
  const std::string top = folder.begin()->string();
  size_t depth = 1;
  if (top == "core" || top == "backends") depth = 2;
  if (top == "models") depth = 3;
  fs::path component;
  for (const fs::path& part : folder) {
    if (depth-- == 0) break;
    component /= part;
  }
  return component.generic_string();
}

Includes FindIncludes() {
  static const std::regex kInclude(
      R"re(#include ["<]((?:core|media|models|samplers|engine|server|downloads|cli|conformance|backends|web|rullama)/[^">]+)[">])re");
  Includes includes;
  for (const char* folder : {"core", "media", "models", "samplers", "engine", "server", "downloads",
                             "cli", "conformance", "backends", "web"}) {
    for (const auto& entry : fs::recursive_directory_iterator(SourceDirectory() / folder)) {
      const std::string extension = entry.path().extension().string();
      if (extension != ".cc" && extension != ".h") continue;
      if (IsForTests(entry.path().filename().string())) continue;
      const std::string from =
          ComponentOf(fs::relative(entry.path(), SourceDirectory()).generic_string());
      const std::string text = ReadText(entry.path());
      for (std::sregex_iterator at(text.begin(), text.end(), kInclude), end; at != end; ++at) {
        std::string to = (*at)[1];
        if (to.starts_with("rullama/engine/")) to = to.substr(std::string("rullama/").size());
        if (to.starts_with("rullama/")) to = "core/" + to.substr(std::string("rullama/").size());
        to = ComponentOf(to);
        if (to != from) includes[from].insert(to);
      }
    }
  }
  return includes;
}

// Reading all sources takes most of the test, so it is done once.
const Includes& IncludesOfSources() {
  static const Includes kIncludes = FindIncludes();
  return kIncludes;
}

// The lines "component: a, b" of tests/docs/includes.txt; "folder/*" stands for all components of a
// folder that have no line.
Includes ListedIncludes() {
  static const std::regex kLine("([a-z0-9_/]+(?:/\\*)?): ([a-z0-9_/]+(?:, [a-z0-9_/]+)*)");
  static const std::regex kName("[a-z0-9_/]+");
  Includes includes;
  std::istringstream list(ReadText(SourceDirectory() / kList));
  for (std::string line; std::getline(list, line);) {
    if (line.starts_with("#")) continue;
    std::smatch row;
    const bool matches = std::regex_match(line, row, kLine);
    EXPECT_TRUE(matches) << kList << ": expected 'component: a, b', found '" << line << "'";
    if (!matches) continue;
    const std::string names = row[2];
    EXPECT_FALSE(includes.contains(row[1])) << kList << " has two lines for " << row[1];
    for (std::sregex_iterator name(names.begin(), names.end(), kName), end; name != end; ++name) {
      includes[row[1]].insert(name->str());
    }
  }
  return includes;
}

TEST(Architecture, ComponentsIncludeWhatIsListed) {
  const Includes listed = ListedIncludes();
  const Includes& sources = IncludesOfSources();
  EXPECT_GT(sources.size(), 15u);
  std::set<std::string> used;
  for (const auto& [from, to] : sources) {
    auto row = listed.find(from);
    if (row == listed.end()) row = listed.find(from.substr(0, from.rfind('/')) + "/*");
    ASSERT_NE(row, listed.end()) << kList << " has no line for " << from;
    EXPECT_EQ(row->second, to) << kList << ", line of " << from;
    used.insert(row->first);
  }
  for (const auto& [from, to] : listed) {
    EXPECT_TRUE(used.contains(from)) << kList << ": " << from << " includes nothing";
  }
}

// The components on a way from `component` back to itself, or nothing. `done`: those with no such
// way.
std::vector<std::string> CycleFrom(const std::string& component, const Includes& includes,
                                   std::vector<std::string> way, std::set<std::string>& done) {
  if (done.contains(component)) return {};
  const auto before = std::ranges::find(way, component) - way.begin();
  const bool again = before < std::ssize(way);
  way.push_back(component);
  if (again) return {way.begin() + before, way.end()};
  const auto row = includes.find(component);
  if (row != includes.end()) {
    for (const std::string& other : row->second) {
      if (auto cycle = CycleFrom(other, includes, way, done); !cycle.empty()) return cycle;
    }
  }
  done.insert(component);
  return {};
}

TEST(Architecture, NoComponentIncludesItselfThroughOthers) {
  const Includes& sources = IncludesOfSources();
  std::set<std::string> done;
  for (const auto& [component, to] : sources) {
    EXPECT_THAT(CycleFrom(component, sources, {}, done), ::testing::IsEmpty());
  }
}

// Facts about an API, a driver or a card reach the shared lowering as data: target.h and
// preferences.h say where they come from. dialect.h spells the languages of APIs.
TEST(Architecture, SharedLoweringNamesNoApiAndNoDriver) {
  static const std::regex kRow(R"re(\nRL_[A-Z]+_BACKEND\(([a-z_0-9]+))re");
  const std::string rows = ReadText(SourceDirectory() / "backends/gpu_backends.def");
  std::string names = "nvidia|llvmpipe|lavapipe|mesa|pocl|h\\d00";
  size_t apis = 0;
  for (std::sregex_iterator row(rows.begin(), rows.end(), kRow), end; row != end; ++row, ++apis) {
    names += "|" + (*row)[1].str();
  }
  EXPECT_GE(apis, 3u);
  const std::regex name_of_api("\\b(" + names + ")\\b", std::regex::icase);
  static const std::set<std::string> kSources = {"dialect.h", "kernel_source.h", "preferences.h",
                                                 "target.h", "write_kernel_headers.cc"};
  for (const auto& entry : fs::directory_iterator(SourceDirectory() / "backends/gpu")) {
    const std::string name = entry.path().filename().string();
    const std::string extension = entry.path().extension().string();
    if ((extension != ".cc" && extension != ".h") || IsForTests(name) || kSources.contains(name)) {
      continue;
    }
    const std::string text = ReadText(entry.path());
    std::smatch found;
    EXPECT_FALSE(std::regex_search(text, found, name_of_api)) << name << " names " << found.str();
  }
}

}  // namespace
}  // namespace rullama
