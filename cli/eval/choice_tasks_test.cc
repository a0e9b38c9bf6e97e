#include "cli/eval/choice_tasks.h"

#include <gmock/gmock.h>

#include <cstdint>

#include "core/base/must_test_util.h"

namespace rullama::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Number(uint32_t number) {
  return {reinterpret_cast<const char*>(&number), sizeof(number)};
}
std::string Text(const std::string& text) {
  return Number(static_cast<uint32_t>(text.size())) + text;
}
// A list of answers, of which one is right.
std::string Answers(const std::vector<std::string>& answers, size_t right) {
  std::string out = Number(static_cast<uint32_t>(answers.size()));
  for (const std::string& answer : answers) out += Text(answer);
  for (size_t i = 0; i < answers.size(); ++i) out += Number(i == right ? 1 : 0);
  return out;
}
std::string File(const std::string& task) { return Number(1) + Number(8) + task; }

TEST(ChoiceTasks, HellaSwag) {
  const auto tasks = Must(ParseHellaSwag("He opens\n2\na\nb\nc\nd\nShe\r\n0\r\n1\n2\n3\n4"));
  ASSERT_EQ(tasks.size(), 2U);
  EXPECT_EQ(tasks[0].question, "He opens");
  EXPECT_THAT(tasks[0].answers, ElementsAre("a", "b", "c", "d"));
  EXPECT_THAT(tasks[0].right, ElementsAre(false, false, true, false));
  EXPECT_EQ(tasks[1].question, "She");
  for (const char* wrong : {"", "a\n1\nb\nc\nd", "a\n4\nb\nc\nd\ne", "a\n-1\nb\nc\nd\ne",
                            "a\n1\nb\n\nd\ne", "a\n1\nb\n\xff\nd\ne"}) {
    const auto refused = ParseHellaSwag(wrong);
    ASSERT_FALSE(refused) << wrong;
    EXPECT_EQ(refused.error().id, "eval.file");
  }
}

TEST(ChoiceTasks, MultipleChoice) {
  const std::string task = Text("2 + 2 is") + Answers({"3", "4", "5"}, 1) + Answers({}, 0);
  const auto tasks = Must(ParseMultipleChoice(File(task)));
  ASSERT_EQ(tasks.size(), 1U);
  EXPECT_EQ(tasks[0].question, "2 + 2 is");
  EXPECT_THAT(tasks[0].answers, ElementsAre("3", "4", "5"));
  EXPECT_THAT(tasks[0].right, ElementsAre(false, true, false));
}

TEST(ChoiceTasks, DamagedFilesAreErrors) {
  const std::string whole =
      File(Text("2 + 2 is") + Answers({"3", "4"}, 1) + Answers({"x", "y"}, 0));
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(ParseMultipleChoice(whole.substr(0, size))) << size;
  }
  EXPECT_TRUE(ParseMultipleChoice(whole));
  const auto error = [](const std::string& task) {
    const auto refused = ParseMultipleChoice(File(task));
    return refused ? "none" : refused.error().message;
  };
  EXPECT_THAT(error(Text("") + Answers({"3", "4"}, 1) + Answers({}, 0)), HasSubstr("empty"));
  EXPECT_THAT(error(Text("a") + Answers({"3"}, 0) + Answers({}, 0)), HasSubstr("fewer than two"));
  EXPECT_THAT(error(Text("a") + Answers({"3", "4"}, 2) + Answers({}, 0)), HasSubstr("no right"));
  EXPECT_FALSE(ParseMultipleChoice(Number(0xffffffff) + whole)) << "more tasks than bytes";
}

TEST(ChoiceTasks, SomeAreSpreadOverAll) {
  std::vector<ChoiceTask> tasks(10);
  for (size_t i = 0; i < tasks.size(); ++i) tasks[i].question = std::to_string(i);
  const auto some = SomeOf(tasks, 4);
  ASSERT_EQ(some.size(), 4U);
  EXPECT_EQ(some[0].question, "0");
  EXPECT_EQ(some[3].question, "7");
  EXPECT_EQ(SomeOf(tasks, 0).size(), 10U);
  EXPECT_EQ(SomeOf(tasks, 11).size(), 10U);
}

}  // namespace
}  // namespace rullama::cli
