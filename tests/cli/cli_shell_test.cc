// The program's output for shells and `man`: completion in bash, zsh and fish, and manual pages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <sstream>
#include <string>

#include "tests/cli/program.h"

namespace rullama::cli_test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

constexpr const char* kScripts = RULLAMA_SOURCE_DIR "/cli/completion";

struct ShellResult {
  int exit_code = -1;
  std::string out;  // and what went to stderr
};

// Runs a script in `shell` ("bash -c") with the built program first in PATH, a home of its own and
// a store of Ollama with two models.
ShellResult RunShell(const std::string& shell, const std::string& script) {
  const fs::path home = TemporaryDirectory() / "home";
  const fs::path store = home / ".ollama/models/manifests/registry.ollama.ai/library/gemma4";
  fs::create_directories(store);
  for (const char* tag : {"e2b", "e4b"}) std::fclose(std::fopen((store / tag).c_str(), "w"));
  const fs::path file = TemporaryFile("shell_script", script);
  const std::string command = "cd '" + home.string() + "' && HOME='" + home.string() +
                              "' XDG_CONFIG_HOME= XDG_DATA_HOME= OLLAMA_MODELS= PATH='" +
                              fs::path(RULLAMA_PROGRAM).parent_path().string() + "':\"$PATH\" " +
                              shell + " '" + file.string() + "' 2>&1";
  ShellResult result;
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return result;
  char buffer[4096];
  while (const size_t size = std::fread(buffer, 1, sizeof(buffer), pipe)) {
    result.out.append(buffer, size);
  }
  const int status = ::pclose(pipe);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

// The words that bash offers, one per line. `words` are those of the line as bash splits it, in
// quotes.
std::string CompleteInBash(const std::string& line, const std::string& words) {
  const std::string script = "set -u\nsource " + std::string(kScripts) +
                             "/rullama.bash\n"
                             "complete -p rullama >/dev/null || exit 1\n"
                             "COMP_LINE='" +
                             line + "'\nCOMP_POINT=${#COMP_LINE}\nCOMP_WORDS=(" + words +
                             ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n"
                             "_rullama rullama\nprintf '%s\\n' \"${COMPREPLY[@]-}\"\n";
  const ShellResult result = RunShell("bash --norc", script);
  EXPECT_EQ(result.exit_code, 0) << result.out;
  return result.out;
}

TEST(Completion, BashOffersCommandsOptionsAndValues) {
  EXPECT_EQ(CompleteInBash("rullama ba", "rullama ba"), "backends\n");
  EXPECT_EQ(CompleteInBash("rullama run --flash", "rullama run --flash"), "--flash-attn\n");
  EXPECT_EQ(CompleteInBash("rullama --flash", "rullama --flash"), "--flash-attn\n");
  EXPECT_EQ(CompleteInBash("rullama run --color ", "rullama run --color ''"),
            "always\nauto\nnever\n");
  EXPECT_EQ(CompleteInBash("rullama run --color=a", "rullama run --color = a"), "always\nauto\n");
  EXPECT_EQ(CompleteInBash("rullama quantize a b Q8", "rullama quantize a b Q8"), "Q8_0\n");
  EXPECT_EQ(CompleteInBash("rullama --diffusion-random x", "rullama --diffusion-random x"),
            "xorshift64\n");
  EXPECT_EQ(CompleteInBash("rullama nonsense ", "rullama nonsense ''"), "\n");
  // After "--" there are no options.
  EXPECT_EQ(CompleteInBash("rullama run -- --fl", "rullama run -- --fl"), "\n");
}

TEST(Completion, BashOffersNamesOfThisMachine) {
  EXPECT_EQ(CompleteInBash("rullama run --backend cp", "rullama run --backend cp"), "cpu\n");
  EXPECT_EQ(CompleteInBash("rullama diff --backends cpu,ref", "rullama diff --backends cpu,ref"),
            "cpu,reference\n");
  // Bash replaces only the text after a colon.
  EXPECT_EQ(CompleteInBash("rullama run gemma4:", "rullama run gemma4 :"), "e2b\ne4b\n");
  EXPECT_EQ(CompleteInBash("rullama show -m gem", "rullama show -m gem"),
            "gemma4:e2b\ngemma4:e4b\n");
}

TEST(Completion, BashOffersFilesWhereTheyFit) {
  EXPECT_EQ(CompleteInBash("rullama --config .o", "rullama --config .o"), ".ollama\n");
  EXPECT_EQ(CompleteInBash("rullama show .o", "rullama show .o"), ".ollama\n");
  EXPECT_EQ(CompleteInBash("rullama -n .o", "rullama -n .o"), "\n");
}

TEST(Completion, FishOffersTheSame) {
  const auto complete = [](const std::string& line) {
    const ShellResult result =
        RunShell("fish --no-config",
                 "source " + std::string(kScripts) + "/rullama.fish\ncomplete -C '" + line + "'\n");
    EXPECT_EQ(result.exit_code, 0) << result.out;
    return result.out;
  };
  EXPECT_EQ(complete("rullama backen"), "backends\tList backends and devices of this machine\n");
  EXPECT_THAT(complete("rullama run --flash"), StartsWith("--flash-attn\t"));
  EXPECT_EQ(complete("rullama run --backend cp"), "cpu\tbackend\n");
  EXPECT_THAT(complete("rullama run gemma4:e2"), HasSubstr("gemma4:e2b\tmodel of Ollama\n"));
  EXPECT_THAT(complete("rullama --config .o"), HasSubstr(".ollama/"));
}

TEST(Completion, ZshOffersTheSame) {
  // The completion system of zsh needs a terminal; its two functions print what they are given.
  const auto complete = [](const std::string& words, const std::string& prefix) {
    const ShellResult result =
        RunShell("zsh -f",
                 "_describe() { print -rl -- ${(P)2}; }\n_files() { print FILES; }\n"
                 "words=(" +
                     words + " '" + prefix + "')\nCURRENT=$#words\nPREFIX='" + prefix +
                     "'\nsource " + kScripts + "/_rullama\n");
    return result.out;
  };
  EXPECT_EQ(RunShell("zsh -f -n", ReadFile(fs::path(kScripts) / "_rullama")).exit_code, 0);
  EXPECT_EQ(complete("rullama", "backen"), "backends:List backends and devices of this machine\n");
  EXPECT_THAT(complete("rullama run", "--flash"), StartsWith("--flash-attn:"));
  EXPECT_EQ(complete("rullama run --backend", "cp"), "cpu:backend\n");
  EXPECT_EQ(complete("rullama show", "gemma4:e2"), "gemma4\\:e2b:model of Ollama\nFILES\n");
  EXPECT_EQ(complete("rullama --config", ""), "FILES\n");
}

TEST(Manual, EachCommandHasAPageWithAllItsOptions) {
  const std::string names = RunRullama({"__manual"}).out;
  EXPECT_THAT(names, StartsWith("rullama\nrullama-run\n"));
  std::istringstream lines(names);
  int pages = 0;
  for (std::string name; std::getline(lines, name); ++pages) {
    const RunResult page = RunRullama({"__manual", name, "2000-01-02"});
    ASSERT_EQ(page.exit_code, 0) << name;
    const fs::path file = TemporaryFile("page.1", page.out);
    const ShellResult lint =
        RunShell("sh", "exec mandoc -T lint -W warning '" + file.string() + "'");
    EXPECT_EQ(lint.exit_code, 0) << name << ": " << lint.out;
    const std::string shown =
        RunShell("sh", "mandoc -T utf8 -O width=1000 '" + file.string() + "' | sed 's/.\\x08//g'")
            .out;
    const std::string command = name == "rullama" ? "" : name.substr(8);
    const RunResult help =
        command.empty() ? RunRullama({"--help"}) : RunRullama({command, "--help"});
    ASSERT_EQ(help.exit_code, 0) << name;
    // Names of options, as words of their own.
    std::istringstream words(help.out);
    for (std::string word; words >> word;) {
      if (word.starts_with("-") && word.find(',') != word.npos) {
        word = word.substr(word.rfind(",-") + 1);
      }
      if (!word.starts_with("--")) continue;
      EXPECT_THAT(shown, HasSubstr(word)) << name;
    }
  }
  EXPECT_GT(pages, 15);
}

TEST(Manual, TextsAreShownLetterByLetter) {
  const std::string page = RunRullama({"__manual", "rullama-run", "2000-01-02"}).out;
  EXPECT_THAT(page, HasSubstr(".TH RULLAMA\\-RUN 1 2000-01-02 "));
  EXPECT_THAT(page, HasSubstr("Read \\en, \\et and the like"));
  EXPECT_THAT(page, HasSubstr("\\fB\\-n\\fR, \\fB\\-\\-predict\\fR \\fIN\\fR\n"));
  EXPECT_THAT(RunRullama({"__manual", "nonsense"}).out, IsEmpty());
  EXPECT_THAT(RunRullama({"--help"}).out, Not(HasSubstr("__")));
}

}  // namespace
}  // namespace rullama::cli_test
