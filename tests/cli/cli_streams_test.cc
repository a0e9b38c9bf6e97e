// Tests which output goes to which stream, and the effect of a failing stream or a signal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/cli/program.h"

namespace rullama::cli_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::vector<std::string> Greedy(const std::string& tokens) {
  return {"-m", TinyModel(), "--raw", "--greedy", "-p", "The prince", "-n", tokens};
}

TEST(Streams, TheAnswerAloneIsOnStdout) {
  const RunResult result = RunRullama(Greedy("8"));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, Not(IsEmpty()));
  EXPECT_THAT(result.out, Not(HasSubstr("t/s")));
  EXPECT_THAT(result.err, HasSubstr("t/s"));
  EXPECT_THAT(result.err, Not(HasSubstr("\x1b")));  // no colours in a file
}

// Prompts of several chunks show progress, too.
RunResult InChunks(const std::vector<std::string>& more,
                   const std::vector<std::string>& environment = {}) {
  std::vector<std::string> arguments = Greedy("8");
  arguments.insert(arguments.end(), {"-b", "1"});
  arguments.insert(arguments.end(), more.begin(), more.end());
  RunOptions options;
  options.environment = environment;
  RunResult result = RunRullama(arguments, options);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return result;
}

TEST(Streams, StatisticsAreOneLineThatFitsATerminal) {
  const std::string err = RunRullama(Greedy("64")).err;
  EXPECT_EQ(err.find('\n'), err.size() - 1) << err;
  EXPECT_LE(err.size(), 80U) << err;
  EXPECT_THAT(err, HasSubstr("; 64 generated, "));
}

TEST(Streams, StatisticsAndProgressCanBeSwitchedOff) {
  const RunResult loud = InChunks({});
  EXPECT_THAT(loud.err, HasSubstr("prompt: 100 %"));
  EXPECT_THAT(loud.err, HasSubstr("8 generated"));
  EXPECT_EQ(InChunks({"-q"}).out, loud.out);
  EXPECT_EQ(InChunks({"-q"}).err, "");
  EXPECT_EQ(InChunks({"--quiet"}).err, "");
  for (const std::string level : {"warn", "error", "off"}) {
    EXPECT_EQ(InChunks({}, {"RULLAMA_LOG=" + level}).err, "") << level;
  }
  EXPECT_THAT(InChunks({}, {"RULLAMA_LOG=info"}).err, HasSubstr("8 generated"));
  EXPECT_THAT(InChunks({"-v"}, {"RULLAMA_LOG=off"}).err, HasSubstr("first token after"));
  std::vector<std::string> both = Greedy("1");
  both.insert(both.end(), {"-q", "-v"});
  EXPECT_EQ(RunRullama(both).exit_code, 2);
}

TEST(Streams, QuietRunsStillSayWhatIsWrong) {
  const auto run = [](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = Greedy("1");
    arguments.insert(arguments.end(), more.begin(), more.end());
    RunOptions options;
    options.environment = {"RULLAMA_LOG=off"};
    return RunRullama(arguments, options);
  };
  EXPECT_THAT(run({"-q", "-c", "2"}).err, HasSubstr("[context.overflow]"));
  // Warnings pass -q, but not RULLAMA_LOG=off.
  EXPECT_EQ(run({"-q", "--t-min", "0.1"}).err, "");
  EXPECT_THAT(InChunks({"-q", "--t-min", "0.1"}).err, HasSubstr("warning: --t-min has no effect"));
}

TEST(Streams, AnEmptyAnswerIsEmpty) { EXPECT_EQ(RunRullama(Greedy("0")).out, ""); }

TEST(Streams, NoRateForFewerThanTwoTokens) {
  EXPECT_THAT(RunRullama(Greedy("0")).err, HasSubstr("; 0 generated; token limit\n"));
  EXPECT_THAT(RunRullama(Greedy("1")).err, HasSubstr("; 1 generated; token limit\n"));
  EXPECT_THAT(RunRullama(Greedy("2")).err, HasSubstr("; 2 generated, "));
}

TEST(Streams, BackslashesAreReadOnlyOnRequest) {
  const auto ask = [](const std::string& prompt, const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"-m", TinyModel(), "--raw", "--greedy",
                                          "-n", "8",         "-p",    prompt};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const RunResult result = RunRullama(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out + result.err.substr(0, result.err.find(','));  // with the tokens' number
  };
  const std::string characters = ask("The prince\n\t\"said\" \\ \\d", {});
  const std::string sequences = R"(The prince\n\t\"said\" \\ \d)";
  EXPECT_EQ(ask(sequences, {"-e"}), characters);
  EXPECT_NE(ask(sequences, {}), characters);
}

TEST(Streams, ColourCanBeForced) {
  const RunResult result = RunRullama({"run", "--color", "always", "-p", "x"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("\x1b[31m"));
}

TEST(Streams, AReaderThatGoesAwayIsNoError) {
  RunningProgram program(Greedy("-1"));
  EXPECT_THAT(program.ReadSome(), Not(IsEmpty()));
  program.CloseStdout();
  EXPECT_EQ(program.Wait(), 0);
}

TEST(Streams, ClosedStdoutIsAnOutputError) {
  RunOptions options;
  options.close_stdout = true;
  const RunResult result = RunRullama(Greedy("-1"), options);
  EXPECT_EQ(result.exit_code, 6);
  EXPECT_THAT(result.err, HasSubstr("[io.stdout]"));
}

TEST(Streams, FullDiskIsAnOutputError) {
  RunOptions options;
  options.stdout_path = "/dev/full";
  const RunResult result = RunRullama(Greedy("-1"), options);
  EXPECT_EQ(result.exit_code, 6);
  EXPECT_THAT(result.err, HasSubstr("[io.stdout]"));
}

TEST(Streams, ClosedStdinMattersOnlyWithoutAPrompt) {
  RunOptions options;
  options.close_stdin = true;
  EXPECT_EQ(RunRullama({"-m", TinyModel(), "--raw"}, options).exit_code, 6);
  EXPECT_EQ(RunRullama(Greedy("2"), options).exit_code, 0);
}

TEST(Streams, PipedTextComesAfterThePrompt) {
  RunOptions piped;
  piped.input = "and the general\n";
  const std::vector<std::string> base = {"-m", TinyModel(), "--raw", "--greedy", "-n", "8"};
  std::vector<std::string> both = base;
  both.insert(both.end(), {"-p", "The prince"});
  std::vector<std::string> joined = base;
  joined.insert(joined.end(), {"-p", "The prince\n\nand the general"});
  const RunResult result = RunRullama(both, piped);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, RunRullama(joined).out);
  std::vector<std::string> alone = base;
  alone.insert(alone.end(), {"-p", "and the general"});
  EXPECT_EQ(RunRullama(base, piped).out, RunRullama(alone).out);
}

TEST(Streams, PromptFilesAreChecked) {
  const auto run = [](const std::string& path) {
    return RunRullama({"-m", TinyModel(), "--raw", "-n", "1", "-f", path});
  };
  EXPECT_EQ(run("/no/such/prompt.txt").exit_code, 6);
  const RunResult binary = run(TemporaryFile("prompt.bin", "abc\xFF").string());
  EXPECT_EQ(binary.exit_code, 2);
  EXPECT_THAT(binary.err, HasSubstr("offset 3"));
  EXPECT_THAT(binary.err, HasSubstr("[text.utf8]"));
}

TEST(Streams, InterruptEndsTheAnswerWithCode130) {
  RunningProgram program(Greedy("-1"));
  EXPECT_THAT(program.ReadSome(), Not(IsEmpty()));
  program.Signal(SIGINT);
  EXPECT_EQ(program.Wait(), 130);
}

TEST(Streams, TerminationHasCode143) {
  RunningProgram program(Greedy("-1"));
  EXPECT_THAT(program.ReadSome(), Not(IsEmpty()));
  program.Signal(SIGTERM);
  EXPECT_EQ(program.Wait(), 143);
}

}  // namespace
}  // namespace rullama::cli_test
