// Tests what remains on a terminal after a run: stdin, stdout and stderr are all on it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/program.h"

namespace rullama::cli_test {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// One step of a prompt takes 512 tokens unless -b says otherwise. One more, so that there is a bar
// and after it one step for each token. In the tiny model each of these words is a token, and the
// first one of all begins the text.
constexpr size_t kLongPromptTokens = 513;

std::vector<std::string> LongPrompt(const std::vector<std::string>& more) {
  std::string text = "The";
  for (size_t tokens = 2; tokens < kLongPromptTokens; ++tokens) {
    text += tokens % 2 == 0 ? " and" : " the";
  }
  std::vector<std::string> arguments = {"-f", TemporaryFile("long.txt", text)};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

struct TerminalRun {
  std::string text;
  std::string received;
};

TerminalRun Show(const std::vector<std::string>& arguments, const TerminalOptions& options) {
  ProgramOnTerminal program(arguments, options);
  EXPECT_EQ(program.Wait(), 0);
  return {program.screen().Text(), program.received()};
}

// The output of the program into a pipe, without the newline at its end.
std::string Piped(const std::vector<std::string>& arguments) {
  const RunResult result = RunRullama(arguments);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_GT(result.out.size(), 40U);
  return result.out.substr(0, result.out.find_last_not_of('\n') + 1);
}

// The answer stands alone on the screen: nothing above it, the statistics below.
void ExpectAnswerStays(const std::vector<std::string>& arguments, const TerminalOptions& options) {
  const std::string answer = Piped(arguments);
  const TerminalRun shown = Show(arguments, options);
  EXPECT_THAT(shown.text, StartsWith(answer + "\n")) << options.columns << " columns";
  EXPECT_THAT(shown.text, Not(HasSubstr("##"))) << options.columns << " columns";
}

TEST(Terminal, TheBarOfAPromptLeavesTheAnswerAlone) {
  const auto arguments = LongPrompt({"-m", TinyModel(), "--raw", "--greedy", "-n", "24"});
  EXPECT_THAT(Show(arguments, {}).received, HasSubstr("] 513/513")) << "there was a bar";
  for (const int columns : {80, 40, 20, 8}) ExpectAnswerStays(arguments, {.columns = columns});
}

TEST(Terminal, TheBarOfAConversationsPromptLeavesTheAnswerAlone) {
  ExpectAnswerStays(LongPrompt({"-m", TinyModel(), "--greedy", "-n", "80"}), {});
}

TEST(Terminal, TheBarOfAPromptLeavesCanvasesAlone) {
  const auto arguments = LongPrompt({"-m", TinyDiffusionModel(), "--raw", "-n", "128", "--seed",
                                     "7", "--diffusion-steps", "2", "--color", "never"});
  ExpectAnswerStays(arguments, {});
}

TEST(Terminal, ADumbTerminalGetsLinesInsteadOfABar) {
  const auto arguments = LongPrompt({"-m", TinyModel(), "--raw", "--greedy", "-n", "24"});
  const TerminalRun shown = Show(arguments, {.term = "dumb"});
  // Tokens that are read while the program writes a line get no line of their own.
  EXPECT_THAT(shown.text, AnyOf(StartsWith("rullama: prompt: 90 %\nrullama: prompt: 100 %\n"),
                                StartsWith("rullama: prompt: 100 %\n")));
  EXPECT_THAT(shown.text, HasSubstr("100 %\n" + Piped(arguments) + "\n"));
  EXPECT_THAT(shown.received, Not(HasSubstr("\x1b")));
  for (size_t at = 0; (at = shown.received.find('\r', at)) != std::string::npos; ++at) {
    EXPECT_EQ(shown.received[at + 1], '\n');
  }
}

}  // namespace
}  // namespace rullama::cli_test
