// What goes to which stream, and what happens when a stream fails or a signal comes.
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
