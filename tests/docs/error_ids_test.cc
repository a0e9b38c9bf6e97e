// docs/errors.md is the catalogue of error ids: each id that the sources make has a row there with
// its exit code, and each row belongs to an id that the sources make. Read from the sources as
// text: `ErrorKind::kX, "area.what"`, and for ids that reach an error through a parameter or a
// constant, the literals of the files named in kIndirect.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <string_view>

#include "core/base/status.h"
#include "tests/docs/source_text.h"

namespace rullama {
namespace {

namespace fs = std::filesystem;

// Exit codes of an id and where the sources use it with each.
using Uses = std::map<std::string, std::map<int, std::set<std::string>>>;

// The literals of `file` that begin with `area` and follow no ErrorKind are ids of this kind.
struct Indirect {
  std::string_view file;
  std::string_view area;
  ErrorKind kind;
};

constexpr Indirect kIndirect[] = {
    {"cli/terminal/console.cc", "io.", ErrorKind::kIo},
    {"cli/terminal/console.h", "io.", ErrorKind::kIo},
    {"cli/chat/prompt_log.cc", "io.", ErrorKind::kIo},
    {"core/config/layered_config.cc", "config.", ErrorKind::kUsage},
    {"core/config/yaml_tree.cc", "config.", ErrorKind::kUsage},
    {"core/constraint/json_text.cc", "schema.", ErrorKind::kUsage},
    {"core/constraint/schema_node.cc", "schema.", ErrorKind::kUsage},
    {"core/gguf/atomic_file.cc", "io.", ErrorKind::kIo},
    {"core/gguf/gguf_parse.cc", "gguf.", ErrorKind::kModelFile},
    {"core/ir/verify.cc", "ir.", ErrorKind::kRuntime},
    {"core/passes/memory_plan.cc", "passes.", ErrorKind::kRuntime},
    {"core/plugin/handshake.cc", "plugin.", ErrorKind::kBackend},
    {"core/plugin/plugin.cc", "device.", ErrorKind::kUsage},
    {"core/reference/interpreter.cc", "ref.", ErrorKind::kRuntime},
    {"models/common/chat/json.h", "chat.", ErrorKind::kUsage},
    {"models/common/chat/validate.cc", "chat.", ErrorKind::kUsage},
    {"models/common/graph/architecture.h", "model.", ErrorKind::kUsage},
    {"models/common/graph/graph_context.cc", "model.", ErrorKind::kUsage},
    {"models/gemma3/chat/function_values.cc", "chat.", ErrorKind::kUsage},
    {"models/gemma3/chat/template.cc", "chat.", ErrorKind::kUsage},
    {"models/gemma4/chat/template.cc", "chat.", ErrorKind::kUsage},
    {"models/gemma4/chat/values.cc", "chat.", ErrorKind::kUsage},
    {"samplers/entropy_bound.cc", "sampler.", ErrorKind::kUsage},
    {"samplers/settings.cc", "sampler.", ErrorKind::kUsage},
    {"conformance/suite.h", "conformance.", ErrorKind::kBackend},
};

int ExitCodeOf(const std::string& kind) {
  static const std::map<std::string, ErrorKind> kKinds = {
      {"kRuntime", ErrorKind::kRuntime},         {"kUsage", ErrorKind::kUsage},
      {"kBackend", ErrorKind::kBackend},         {"kModelFile", ErrorKind::kModelFile},
      {"kOutOfMemory", ErrorKind::kOutOfMemory}, {"kIo", ErrorKind::kIo},
      {"kThreshold", ErrorKind::kThreshold}};
  const auto found = kKinds.find(kind);
  return found == kKinds.end() ? -1 : static_cast<int>(found->second);
}

bool IsIndirect(std::string_view file) {
  return std::ranges::any_of(kIndirect, [&](const Indirect& row) { return row.file == file; });
}

// Removes lines that are comments.
std::string WithoutComments(const std::string& text) {
  std::istringstream lines(text);
  std::string code;
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find_first_not_of(' ');
    if (first == std::string::npos || line.compare(first, 2, "//") != 0) code += line + "\n";
  }
  return code;
}

// One source file: what follows each ErrorKind, then the literals of indirect files.
void CollectIds(const std::string& file, const std::string& text, Uses& uses) {
  static const std::regex kDirect(
      R"re(ErrorKind::(k[A-Za-z]+),\s*(?:"([a-z0-9_.]*)"|[A-Za-z_]))re");
  static const std::regex kLiteral(R"re("([a-z][a-z0-9_]*\.[a-z0-9_]+)")re");
  std::set<std::ptrdiff_t> taken;
  for (std::sregex_iterator at(text.begin(), text.end(), kDirect), end; at != end; ++at) {
    const std::smatch& match = *at;
    if (match[2].matched) {
      uses[match[2]][ExitCodeOf(match[1])].insert(file);
      taken.insert(match.position(2) - 1);
    } else {
      EXPECT_TRUE(IsIndirect(file))
          << file << ": an error id that is not a literal after its kind: " << match.str()
          << "; add the file to kIndirect";
    }
  }
  for (const Indirect& row : kIndirect) {
    if (row.file != file) continue;
    for (std::sregex_iterator at(text.begin(), text.end(), kLiteral), end; at != end; ++at) {
      const std::string id = (*at)[1];
      const auto used = uses.find(id);
      const bool direct = used != uses.end() && taken.contains(at->position());
      if (!direct && id.starts_with(row.area) && !id.ends_with(".h")) {
        // A comparison with an id does not make an error; another place does.
        const std::string before = text.substr(static_cast<size_t>(at->position()) - 3, 3);
        if (before != "!= " && before != "== ") {
          uses[id][static_cast<int>(row.kind)].insert(file);
        }
      }
    }
  }
}

Uses FindUses() {
  Uses uses;
  for (const char* folder : {"core", "media", "models", "samplers", "engine", "server", "downloads",
                             "cli", "conformance", "web"}) {
    for (const auto& entry : fs::recursive_directory_iterator(SourceDirectory() / folder)) {
      const std::string extension = entry.path().extension().string();
      if (extension != ".cc" && extension != ".h") continue;
      const std::string file = fs::relative(entry.path(), SourceDirectory()).generic_string();
      if (IsForTests(entry.path().filename().string())) continue;
      CollectIds(file, WithoutComments(ReadText(entry.path())), uses);
    }
  }
  return uses;
}

// Reading all sources takes most of the test, so it is done once.
const Uses& UsesInSources() {
  static const Uses kUses = FindUses();
  return kUses;
}

struct Row {
  int exit_code = 0;
  std::string meaning;
};

// Rows "| `area.what` | 4 | meaning |" in the order of the page.
std::vector<std::pair<std::string, Row>> Catalogue() {
  static const std::regex kRow(R"re(\| `([a-z0-9_.]+)` \| ([0-9]) \| (.+) \|)re");
  std::istringstream lines(ReadText(SourceDirectory() / "docs/errors.md"));
  std::vector<std::pair<std::string, Row>> rows;
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (!line.starts_with("| `")) continue;
    if (!std::regex_match(line, match, kRow)) {
      ADD_FAILURE() << "docs/errors.md: no row of id, exit code and meaning: " << line;
      continue;
    }
    rows.push_back({match[1], {std::stoi(match[2]), match[3]}});
  }
  return rows;
}

std::string FilesOf(const std::set<std::string>& files) {
  std::string text;
  for (const std::string& file : files) text += " " + file;
  return text;
}

TEST(ErrorIds, EachIdOfTheSourcesIsInTheCatalogueWithItsOnlyKind) {
  std::map<std::string, Row> rows;
  for (const auto& [id, row] : Catalogue()) rows[id] = row;
  const Uses& uses = UsesInSources();
  EXPECT_GT(uses.size(), 150u);
  for (const auto& [id, codes] : uses) {
    const auto row = rows.find(id);
    for (const auto& [code, files] : codes) {
      if (row == rows.end()) {
        ADD_FAILURE() << "docs/errors.md has no row for " << id << " with exit code " << code
                      << ", used in" << FilesOf(files);
      } else {
        EXPECT_EQ(code, row->second.exit_code)
            << id << " has another kind in" << FilesOf(files) << " than in docs/errors.md";
      }
    }
  }
}

TEST(ErrorIds, EachIdOfTheCatalogueIsUsed) {
  const Uses& uses = UsesInSources();
  for (const auto& [id, row] : Catalogue()) {
    EXPECT_TRUE(uses.contains(id)) << "docs/errors.md explains " << id << ", which no source makes";
  }
}

TEST(ErrorIds, TheCatalogueIsSortedAndHasEachIdOnce) {
  const auto rows = Catalogue();
  for (size_t i = 1; i < rows.size(); ++i) {
    EXPECT_LT(rows[i - 1].first, rows[i].first)
        << "docs/errors.md: ids in alphabetical order, each once";
  }
}

TEST(ErrorIds, HaveAnAreaAndAName) {
  static const std::regex kForm(R"re([a-z][a-z0-9_]*\.[a-z][a-z0-9_]*)re");
  for (const auto& [id, codes] : UsesInSources()) {
    EXPECT_TRUE(std::regex_match(id, kForm)) << id;
  }
}

}  // namespace
}  // namespace rullama
