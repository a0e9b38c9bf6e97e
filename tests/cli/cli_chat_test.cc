// Conversations on a terminal, typed key by key.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "tests/cli/program.h"

namespace rullama::cli_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kUp = "\x1b[A";
constexpr const char* kLeft = "\x1b[D";
constexpr const char* kCtrlC = "\x03";
constexpr const char* kCtrlD = "\x04";

std::vector<std::string> Arguments(const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {"-m", TinyModel(), "--greedy"};
  if (std::ranges::find(more, "-n") == more.end()) arguments.insert(arguments.end(), {"-n", "8"});
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

// The model's answer to a prompt without a conversation around it.
std::string AnswerTo(const std::string& prompt, const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = {"-p", prompt};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const RunResult result = RunRullama(Arguments(arguments));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_GT(result.out.size(), 8U) << prompt;
  return result.out.substr(0, result.out.find_last_not_of(" \n") + 1);
}

class Chat {
 public:
  explicit Chat(const std::vector<std::string>& more = {}, const TerminalOptions& options = {})
      : program_(Arguments(more), options) {
    Ready();
  }

  // Waits for the next prompt. Text that is typed before it would be shown twice.
  void Ready() { program_.Expect("\n>", ++prompts_); }
  void Type(const std::string& keys) { program_.Type(keys); }
  void Say(const std::string& keys) {
    Type(keys + "\r");
    Ready();
  }
  void Expect(const std::string& text, int times = 1) { program_.Expect(text, times); }
  void Resize(int columns, int rows) const { program_.Resize(columns, rows); }
  int Leave() {
    Type("/bye\r");
    return program_.Wait();
  }
  int Wait() { return program_.Wait(); }
  [[nodiscard]] std::string shown() const { return program_.screen().Text(); }
  [[nodiscard]] const std::string& received() const { return program_.received(); }

 private:
  ProgramOnTerminal program_;
  int prompts_ = 0;
};

TEST(Chat, AnswersAsWithoutATerminal) {
  Chat chat;
  chat.Say("The prince");
  EXPECT_THAT(chat.shown(), HasSubstr("> The prince\n" + AnswerTo("The prince") + "\n>"));
  EXPECT_THAT(chat.shown(), Not(HasSubstr("t/s"))) << "statistics are for -v";
  EXPECT_EQ(chat.Leave(), 0);
}

TEST(Chat, LinesCanBeEdited) {
  const std::string hello = AnswerTo("hello");
  Chat chat;
  chat.Say(std::string("helo") + kLeft + "l");
  chat.Expect("> hello\n" + hello);
  chat.Say("/clear");
  chat.Say("xhello\x01\x1b[3~");  // Home, Delete
  chat.Expect("> hello\n" + hello, 2);
  chat.Say("/clear");
  const std::string wide = "\xE6\x97\xA5\xE6\x9C\xAC";
  chat.Say("\xC3\xB6" + wide + wide + "\x7f\x7f");
  chat.Expect("> \xC3\xB6" + wide + "\n" + AnswerTo("\xC3\xB6" + wide));
}

TEST(Chat, ArrowKeysRecallEarlierMessages) {
  const std::string folder = (TemporaryDirectory() / "recall").string();
  const TerminalOptions options{.environment = {"XDG_STATE_HOME=" + folder}};
  {
    Chat chat({}, options);
    chat.Say("first");
    chat.Say("second");
    chat.Say(std::string(kUp) + kUp);
    chat.Expect("> first", 2);
    chat.Say(std::string(kUp) + "ly");
    chat.Expect("> firstly");
    EXPECT_EQ(chat.Leave(), 0);
  }
  struct stat info {};
  ASSERT_EQ(::stat((folder + "/rullama/history").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600);
  Chat again({}, options);
  again.Type(std::string(kUp) + kUp);  // the last one is /bye
  again.Expect("> firstly");
}

TEST(Chat, TheHistoryCanBeSwitchedOff) {
  const std::string folder = (TemporaryDirectory() / "no_history").string();
  const std::string state = "XDG_STATE_HOME=" + folder;
  Chat by_flag({"--no-history"}, {.environment = {state}});
  by_flag.Say("first");
  by_flag.Type(kUp);  // within the session it works
  by_flag.Expect("> first", 2);
  Chat by_variable({}, {.environment = {state, "RULLAMA_HISTORY=off"}});
  by_variable.Say("first");
  EXPECT_FALSE(std::filesystem::exists(folder));
}

TEST(Chat, PastedLinesAreOneMessage) {
  const std::string answer = AnswerTo("one\ntwo\nthree");
  Chat chat;
  chat.Type("\x1b[200~one\rtwo\rthree\r\x1b[201~");
  chat.Expect("> one\ntwo\nthree");
  chat.Say("");
  EXPECT_THAT(chat.shown(), HasSubstr("three\n" + answer + "\n>"));
  EXPECT_EQ(chat.Leave(), 0);
  EXPECT_THAT(chat.received(), HasSubstr("\x1b[?2004h"));
  EXPECT_TRUE(chat.received().rfind("\x1b[?2004l") > chat.received().rfind("\x1b[?2004h"));
}

TEST(Chat, MessagesOfSeveralLinesAreTyped) {
  const std::string answer = AnswerTo("one\ntwo");
  Chat chat;
  chat.Type("\"\"\"one\r");
  chat.Expect("\n.");
  chat.Say("two\"\"\"");
  chat.Expect(answer);
  chat.Say("/clear");
  chat.Type("one\\\r");
  chat.Expect("\n.", 2);
  chat.Say("two");
  chat.Expect(answer, 2);
  // The whole message comes back, without the marks.
  chat.Type(kUp);
  chat.Expect("> one\ntwo");
  chat.Say("");
  chat.Expect("> one\ntwo\n");
}

TEST(Chat, CommandsAreNotSent) {
  Chat chat({"-v"});
  chat.Say("");
  chat.Say("   ");
  chat.Say("/frobnicate now");
  chat.Expect("there is no command '/frobnicate'; /help lists them");
  chat.Say("/help");
  chat.Expect("/clear");
  chat.Expect("a second time it\nleaves");
  chat.Say("/?");
  chat.Say("/set num_ctx 2");
  chat.Expect("'num_ctx' cannot change within a session; leave and start again with --ctx-size");
  chat.Say("/regen");
  chat.Expect("there is no answer to write again");
  chat.Say("/save");
  chat.Expect("write /save FILE");
  chat.Say("/load /nowhere.json");
  chat.Expect("[io.open]");
  chat.Say("/set colour");
  chat.Expect("there is no setting 'colour'");
  EXPECT_THAT(chat.shown(), Not(HasSubstr("generated")));
  chat.Say(" /frobnicate now");
  chat.Say("/etc/hosts");
  chat.Expect(" generated", 2);
  EXPECT_EQ(chat.Leave(), 0);
}

TEST(Chat, ClearBeginsAnew) {
  const std::string answer = AnswerTo("The general");
  Chat chat;
  chat.Say("The prince");
  chat.Say("/clear");
  chat.Say("The general");
  EXPECT_THAT(chat.shown(), HasSubstr("> The general\n" + answer + "\n>"));
}

TEST(Chat, SettingsChangeWithinASession) {
  Chat chat;
  chat.Say("/set system Be brief.");
  chat.Say("The prince");
  chat.Expect("> The prince\n" + AnswerTo("The prince", {"--system", "Be brief."}));
  chat.Say("/clear");
  chat.Say("/set system");
  chat.Say("/set verbose");
  chat.Say("The prince");
  chat.Expect("> The prince\n" + AnswerTo("The prince"));
  chat.Expect(" generated");
  chat.Say("/set quiet");
  chat.Say("The prince");
  chat.Say("/set think");
  chat.Say("/set nothink");
  chat.Say("/clear");
  chat.Say("The prince");
  chat.Expect("> The prince\n" + AnswerTo("The prince"), 2);
  EXPECT_THAT(chat.shown(), ::testing::ContainsRegex("generated[^\n]*\n[^\n]*first token"));
}

TEST(Chat, TheSamplerIsSetWithinASession) {
  const std::vector<std::string> drawn = {"--temp", "2", "--seed", "7", "-n", "12"};
  std::vector<std::string> arguments = {"-m", TinyModel(), "-p", "The prince"};
  arguments.insert(arguments.end(), drawn.begin(), drawn.end());
  const RunResult expected = RunRullama(arguments);
  ASSERT_EQ(expected.exit_code, 0) << expected.err;
  const std::string answer = expected.out.substr(0, expected.out.find_last_not_of(" \n") + 1);
  ASSERT_NE(answer, AnswerTo("The prince", {"-n", "12"}));
  Chat chat;
  chat.Say("/set temperature 2");
  chat.Expect("temperature is 2 from now on.");
  chat.Say("/set parameter seed 7");
  chat.Say("/set num_predict 12");
  chat.Say("The prince");
  chat.Expect("> The prince\n" + answer + "\n>");
  chat.Say("/set top_p 7");
  chat.Expect("[sampler.range]");
  chat.Say("/set top_p lots");
  chat.Expect("write /set top_p and a number");
  EXPECT_EQ(chat.Leave(), 0);
}

TEST(Chat, AnAnswerIsWrittenAgain) {
  Chat chat;
  chat.Say("/set verbose");
  chat.Say("/set temp 0.9");
  chat.Say("The prince");
  chat.Expect(" generated", 1);
  chat.Say("/regen");
  chat.Expect(" generated", 2);
  chat.Say("/set temperature 0");
  chat.Say("/regen");
  chat.Expect(" generated", 3);
  chat.Expect("> /regen\n" + AnswerTo("The prince"));
  EXPECT_EQ(chat.Leave(), 0);
}

TEST(Chat, MessagesAreSavedAndLoaded) {
  const std::filesystem::path file = TemporaryDirectory() / "chat.json";
  Chat first;
  first.Say("The prince");
  first.Say("/save " + file.string());
  first.Expect("The messages are saved.");
  EXPECT_EQ(first.Leave(), 0);
  EXPECT_THAT(ReadFile(file), HasSubstr(R"({"content":"The prince","role":"user"})"));
  Chat second;
  second.Say("/load " + file.string());
  second.Expect("The conversation continues from the file.");
  second.Say("/regen");
  second.Expect("> /regen\n" + AnswerTo("The prince"));
  const std::filesystem::path wrong = TemporaryFile("wrong.json", R"([{"role": "king"}])");
  second.Say("/load " + wrong.string());
  second.Expect("[chat.content]");
  second.Say("/regen");
  second.Expect("> /regen\n" + AnswerTo("The prince"), 2);
  EXPECT_EQ(second.Leave(), 0);
}

// A file may hold an answer without a question: nothing is there to be answered again.
TEST(Chat, ALoadedAnswerAloneCannotBeWrittenAgain) {
  const std::filesystem::path file =
      TemporaryFile("answer.json", R"([{"role": "assistant", "content": "hi"}])");
  Chat chat;
  chat.Say("/load " + file.string());
  chat.Expect("The conversation continues from the file.");
  chat.Say("/regen");
  chat.Expect("there is no answer to write again");
  chat.Say("The prince");
  chat.Say("/regen");
  EXPECT_EQ(chat.Leave(), 0);
}

TEST(Chat, RawTextHasNoMessagesToSave) {
  Chat chat({"--raw"});
  chat.Say("The prince");
  const std::filesystem::path file = TemporaryDirectory() / "raw.json";
  for (const std::string& command :
       {"/save " + file.string(), "/load " + file.string(), std::string("/regen")}) {
    chat.Say(command);
  }
  chat.Expect("with --raw there are no messages", 3);
  EXPECT_FALSE(std::filesystem::exists(file));
  EXPECT_EQ(chat.Leave(), 0);
}

// Keys pressed while an answer is written are not in it, and are the beginning of the next line,
// also if the answer is stopped.
TEST(Chat, KeysDuringAnAnswerAreForTheNextLine) {
  const std::vector<std::string> endless = {"--logit-bias", "1=-100", "--logit-bias", "16=-100"};
  std::vector<std::string> arguments = endless;
  arguments.insert(arguments.end(), {"-n", "-1"});
  Chat chat(arguments);
  chat.Type("The prince\r");
  chat.Expect("> The prince\n" + AnswerTo("The prince", endless));
  chat.Type("QWERTY");
  chat.Type(kCtrlC);
  chat.Ready();
  chat.Expect("> QWERTY");
  const std::string shown = chat.shown();
  EXPECT_EQ(shown.find("QWERTY"), shown.rfind("QWERTY")) << shown;
}

TEST(Chat, ANewSizeDuringAnAnswerShowsOnePrompt) {
  const std::vector<std::string> endless = {"--logit-bias", "1=-100", "--logit-bias", "16=-100"};
  std::vector<std::string> arguments = endless;
  arguments.insert(arguments.end(), {"-n", "-1"});
  Chat chat(arguments);
  chat.Type("The prince\r");
  chat.Expect("> The prince\n" + AnswerTo("The prince", endless));
  chat.Resize(100, 30);
  chat.Type(kCtrlC);
  chat.Ready();
  chat.Type("half a line");
  chat.Expect("> half a line");
  EXPECT_THAT(chat.shown(), Not(HasSubstr("> >")));
}

TEST(Chat, KeysThatLeave) {
  Chat by_end;
  by_end.Type(kCtrlD);
  EXPECT_EQ(by_end.Wait(), 0);
  Chat by_interrupt;
  by_interrupt.Type(std::string("half a line") + kCtrlC);
  by_interrupt.Ready();
  by_interrupt.Expect("Ctrl-C once more, Ctrl-D or /bye");
  by_interrupt.Say("The prince");
  by_interrupt.Expect("> The prince\n" + AnswerTo("The prince"));
  by_interrupt.Type(kCtrlC);
  by_interrupt.Ready();
  by_interrupt.Type(kCtrlC);
  EXPECT_EQ(by_interrupt.Wait(), 130);
}

TEST(Chat, InterruptEndsAnAnswerOnly) {
  const std::vector<std::string> endless = {"--logit-bias", "1=-100", "--logit-bias", "16=-100"};
  std::vector<std::string> arguments = endless;
  arguments.insert(arguments.end(), {"-n", "-1", "-v"});
  Chat chat(arguments);
  chat.Type("The prince\r");
  chat.Expect("> The prince\n" + AnswerTo("The prince", endless));
  chat.Type(kCtrlC);
  chat.Ready();
  chat.Expect("; interrupted\n");
  chat.Say("/set verbose");
  EXPECT_EQ(chat.Leave(), 0);
}

// What was interrupted before counts only until something was typed, or an answer was stopped.
TEST(Chat, InterruptsAreForgotten) {
  const std::vector<std::string> endless = {"--logit-bias", "1=-100", "--logit-bias", "16=-100"};
  std::vector<std::string> arguments = endless;
  arguments.insert(arguments.end(), {"-n", "-1", "-v"});
  Chat chat(arguments);
  const std::string answer = AnswerTo("The prince", endless);
  for (int round = 1; round <= 3; ++round) {
    chat.Type("The prince\r");
    chat.Expect("> The prince\n" + answer.substr(0, 8), round);
    chat.Type(kCtrlC);
    chat.Ready();
    chat.Expect("; interrupted\n", round);
    chat.Say("/clear");
  }
  for (int round = 1; round <= 3; ++round) {
    chat.Type("half a line");
    chat.Expect("> half a line", round);  // the terminal forgets what nobody has read
    chat.Type(kCtrlC);
    chat.Ready();
    chat.Expect("Ctrl-C once more, Ctrl-D or /bye", round);
  }
  EXPECT_EQ(chat.Leave(), 0);
}

TEST(Chat, AFullContextForgetsTheOldestTurns) {
  Chat chat({"-c", "120", "-n", "30", "-v"});
  for (int turn = 1; turn <= 6; ++turn) {
    chat.Say("Tell me about the prince and the general and the princess and the war");
    chat.Expect(" generated", turn);
  }
  chat.Expect("so that the context of 120 tokens suffices");
  EXPECT_THAT(chat.shown(), Not(HasSubstr("context.overflow")));
  std::string text;
  for (int i = 0; i < 130; ++i) text += "and ";
  chat.Say(text);
  chat.Expect("this message alone has ");
  chat.Expect("larger --ctx-size (this model takes up to 2048)");
  chat.Say("Hi");
  chat.Expect(" generated", 7);
}

// A turn that forgets reads all that is left anew, so those after it are not to forget as well.
TEST(Chat, AFullContextForgetsSeveralTurnsAtOnce) {
  Chat chat({"-c", "300", "-n", "8", "-v"});
  const std::string message = "Tell me about the prince and the general";
  int turns = 0;
  while (chat.shown().find("forgot the ") == std::string::npos && turns < 30) {
    chat.Say(message);
    chat.Expect(" generated", ++turns);
  }
  EXPECT_THAT(chat.shown(), ::testing::ContainsRegex("forgot the [2-9] oldest turns"));
  chat.Say(message);
  chat.Expect(" generated", ++turns);
  const std::string shown = chat.shown();
  EXPECT_EQ(shown.find("forgot the "), shown.rfind("forgot the ")) << shown;
}

TEST(Chat, AnAnswerThatFillsTheContextIsNotTheEnd) {
  // Banning the tokens that end a turn makes an answer endless.
  Chat chat({"-c", "60", "-n", "-1", "--logit-bias", "1=-100", "--logit-bias", "16=-100"});
  chat.Say("Hi");
  chat.Expect("the answer ends here: the context of 60 tokens is full");
  chat.Say("Go on");
  chat.Expect("forgot the oldest turn");
  chat.Expect("the answer ends here", 2);
  EXPECT_EQ(chat.Leave(), 0);
}

TEST(Chat, ADumbTerminalWillDo) {
  Chat chat({}, {.term = "dumb"});
  chat.Say("The prince");
  chat.Expect(AnswerTo("The prince"));
  EXPECT_EQ(chat.Leave(), 0);
  EXPECT_THAT(chat.received(), Not(HasSubstr("\x1b")));
}

TEST(Chat, ANarrowTerminalWillDo) {
  const std::string message = "The prince and the general";
  Chat chat({}, {.columns = 20});
  chat.Type(message);
  chat.Expect("> " + message);
  chat.Say("");
  chat.Expect(AnswerTo(message));
}

}  // namespace
}  // namespace rullama::cli_test
