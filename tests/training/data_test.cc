// Examples: which tokens of a line are learnt, what happens to lines that are long, wrong or empty,
// their order, and the steps that they are packed into.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "core/base/must_test_util.h"
#include "engine/training/data_set.h"
#include "engine/training/example_order.h"
#include "engine/training/learning_rate.h"
#include "engine/training/packing.h"
#include "models/gemma3/tiny_gemma3_test_util.h"
#include "models/opened_model_test_util.h"

namespace rullama {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DataTest : public testing::Test {
 protected:
  [[nodiscard]] Result<DataSet> Parse(const std::string& text, DataOptions options = {}) const {
    return ParseDataSet(text, "lines.jsonl", *model_, *tokenizer_, options);
  }
  [[nodiscard]] std::string ErrorOf(const std::string& text, DataOptions options = {}) const {
    const auto set = Parse(text, options);
    return set ? "no error" : set.error().ToString();
  }
  // The learnt text of an example, target by target.
  [[nodiscard]] std::string LearntOf(const Example& example) const {
    std::vector<int32_t> ids;
    for (const int32_t target : example.targets) {
      if (target != kNoTarget) ids.push_back(target);
    }
    return Must(tokenizer_->Decode(ids, /*show_control=*/true));
  }

  const OpenedModel tiny_{RULLAMA_SOURCE_DIR "/tests/data/tiny-e2b-Q4_K_M.gguf"};
  const Model* const model_ = tiny_.model.get();
  const Tokenizer* const tokenizer_ = tiny_.tokenizer.get();
};

constexpr const char* kTwoTurns =
    R"({"messages":[{"role":"user","content":"Who?"},{"role":"assistant","content":" A count. "},)"
    R"({"role":"user","content":"And?"},{"role":"assistant","content":"A prince."}]})";

TEST_F(DataTest, TurnsOfTheAssistantAreLearnt) {
  const Example all = Must(Parse(kTwoTurns)).examples.at(0);
  EXPECT_EQ(LearntOf(all), "A count.<turn|>A prince.<turn|>");
  EXPECT_EQ(all.targets.back(), kNoTarget);
  const Example last = Must(Parse(kTwoTurns, {.train_on = TrainOn::kLast})).examples.at(0);
  EXPECT_EQ(LearntOf(last), "A prince.<turn|>");
  EXPECT_EQ(last.ids, all.ids);
  const Example every = Must(Parse(kTwoTurns, {.train_on = TrainOn::kAll})).examples.at(0);
  EXPECT_EQ(every.counted(), every.rows() - 1);
}

// A model without a chat template learns where its answers end, and from what it reads when it
// runs.
TEST_F(DataTest, ABaseModelLearnsTheEndOfEachAnswer) {
  const std::string path = WriteTinyGemma3("base_model.gguf");
  const OpenedModel base(path);
  const Model* const model = base.model.get();
  const Tokenizer* const tokenizer = base.tokenizer.get();
  const TokenId eos = *tokenizer->FindToken("<eos>");
  const auto parse = [&](const std::string& line, DataOptions options = {}) {
    return Must(ParseDataSet(line, "lines", *model, *tokenizer, options)).examples.at(0);
  };
  const auto prompt_of = [&](const char* messages) {
    return Must(model->EncodeChat(*tokenizer, nlohmann::json::parse(messages), {}, {})).ids;
  };

  // Two forms of one line: the answer continues where the prompt of `run` ends, and then ends.
  const std::vector<TokenId> answer = Must(tokenizer->Encode("1805."));
  std::vector<TokenId> expected = prompt_of(R"([{"role":"user","content":"In "}])");
  std::vector<int32_t> targets(expected.size() - 1, kNoTarget);
  expected.insert(expected.end(), answer.begin(), answer.end());
  targets.insert(targets.end(), answer.begin(), answer.end());
  targets.push_back(eos);
  for (const char* line : {R"({"prompt":"In ","completion":"1805."})",
                           R"({"messages":[{"role":"user","content":"In "},)"
                           R"({"role":"assistant","content":"1805."}]})"}) {
    const Example example = parse(line);
    EXPECT_EQ(example.ids, expected) << line;
    EXPECT_EQ(example.targets, targets) << line;
  }

  // Earlier answers end too, but what follows does not read their end.
  const Example all = parse(kTwoTurns);
  EXPECT_EQ(std::ranges::count(all.targets, eos), 2);
  EXPECT_EQ(std::ranges::count(all.ids, eos), 0);
  EXPECT_EQ(std::ranges::count(parse(kTwoTurns, {.train_on = TrainOn::kLast}).targets, eos), 1);
  const Example every = parse(kTwoTurns, {.train_on = TrainOn::kAll});
  EXPECT_EQ(every.counted(), every.rows());
  EXPECT_EQ(std::ranges::count(every.targets, eos), 2);
  std::filesystem::remove(path);
}

TEST_F(DataTest, MessagesAreNoRawText) {
  EXPECT_THAT(ErrorOf(kTwoTurns, {.raw = true}),
              HasSubstr("line 1: found messages, which the chat template renders"));
}

TEST_F(DataTest, CallsOfToolsAreLearntUpToTheMarkerOfTheirResult) {
  const char* line =
      R"({"messages":[{"role":"user","content":"Weather?"},{"role":"assistant","tool_calls":[)"
      R"({"id":"1","type":"function","function":{"name":"get","arguments":{}}}]},)"
      R"({"role":"tool","tool_call_id":"1","content":"sun"},)"
      R"({"role":"assistant","content":"It shines."}]})";
  EXPECT_EQ(LearntOf(Must(Parse(line)).examples.at(0)),
            "<|tool_call>call:get{}<tool_call|><|tool_response>It shines.<turn|>");
}

TEST_F(DataTest, PromptsAndTexts) {
  const std::string pair = R"({"prompt":"It was in July, ","completion":"1805."})";
  EXPECT_EQ(LearntOf(Must(Parse(pair)).examples.at(0)), "1805.<turn|>");
  EXPECT_EQ(LearntOf(Must(Parse(pair, {.raw = true})).examples.at(0)), "1805.<eos>");
  EXPECT_EQ(LearntOf(Must(Parse(R"({"text":"It was."})")).examples.at(0)), "It was.<eos>");
}

// Texts that another tool has rendered: the tokens of the conversation, with one BOS.
TEST_F(DataTest, MarkersInPlainTextAreTokens) {
  const std::string line =
      R"({"messages":[{"role":"user","content":"Who?"},{"role":"assistant","content":"A count."}]})";
  const Example chat = Must(Parse(line, {.train_on = TrainOn::kAll})).examples.at(0);
  const std::string rendered = R"(<bos><|turn>user\nWho?<turn|>\n<|turn>model\nA count.<turn|>)";
  for (const std::string& text : {rendered, rendered.substr(5), rendered + R"(\n)"}) {
    const Example example = Must(Parse(R"({"text":")" + text + R"("})")).examples.at(0);
    // The text has ended already.
    EXPECT_EQ(std::ranges::count(example.ids, *tokenizer_->FindToken("<eos>")), 0) << text;
    ASSERT_GE(example.ids.size(), chat.ids.size());
    EXPECT_TRUE(std::equal(chat.ids.begin(), chat.ids.end(), example.ids.begin())) << text;
    EXPECT_LE(example.ids.size(), chat.ids.size() + 1) << text;
  }
  EXPECT_EQ(LearntOf(Must(Parse(R"({"text":"<bos>It was.<eos>"})")).examples.at(0)),
            "It was.<eos>");
  const char* raw =
      R"({"prompt":"<|turn>user\nWho?<turn|>\n<|turn>model\n","completion":"A count.<turn|>"})";
  const Example pair = Must(Parse(raw, {.raw = true})).examples.at(0);
  EXPECT_EQ(pair.ids, chat.ids);
  EXPECT_EQ(LearntOf(pair), "A count.<turn|>");
}

// What other tools call the parts of a conversation.
TEST_F(DataTest, FormsOfOtherToolsAreRead) {
  const std::string line =
      R"({"messages":[{"role":"user","content":"Who?"},{"role":"assistant","content":"A count."}]})";
  const Example expected = Must(Parse(line)).examples.at(0);
  const char* const same[] = {
      R"({"conversations":[{"from":"human","value":"Who?"},{"from":"gpt","value":"A count."}]})",
      R"({"instruction":"Who?","input":"","output":"A count."})",
      R"({"instruction":"Who?","output":"A count."})",
      (R"({"prompt":[{"role":"user","content":"Who?"}],)"
       R"("completion":[{"role":"assistant","content":"A count."}]})"),
  };
  for (const char* one : same) {
    const auto set = Parse(one);
    ASSERT_TRUE(set) << one << ": " << set.error().ToString();
    EXPECT_EQ(set->examples.at(0).ids, expected.ids) << one;
    EXPECT_EQ(set->examples.at(0).targets, expected.targets) << one;
  }
  const DataSet list = Must(Parse("\xef\xbb\xbf [\n" + line + ",\n " + line + "\n]\n"));
  EXPECT_EQ(list.examples.size(), 2u);
  EXPECT_EQ(list.examples[1].ids, expected.ids);
  const std::string named =
      R"({"talk":[{"from":"human","value":"Who?"},{"from":"gpt","value":"A count."}]})";
  EXPECT_EQ(Must(Parse(named, {.keys = {.messages = "talk"}})).examples.at(0).ids, expected.ids);
  // An input stands on a line of its own; turns of the prompt are not learnt.
  EXPECT_THAT(
      Must(tokenizer_->Decode(
          Must(Parse(R"({"instruction":"Add.","input":"1 2","output":"3"})")).examples.at(0).ids)),
      HasSubstr("Add.\n1 2"));
  const char* longer =
      R"({"prompt":[{"role":"user","content":"Who?"},{"role":"assistant","content":"A count."},)"
      R"({"role":"user","content":"And?"}],"completion":[{"role":"assistant","content":"No."}]})";
  EXPECT_EQ(LearntOf(Must(Parse(longer)).examples.at(0)), "No.<turn|>");
}

TEST_F(DataTest, TheFirstExampleIsDescribed) {
  const std::string pair = R"({"prompt":"It was in July, ","completion":"1805."})";
  EXPECT_EQ(Must(Parse(pair, {.raw = true})).DescribeFirst(*tokenizer_),
            R"(after "<bos>It was in July, " the model learns "1805.<eos>")");
}

TEST_F(DataTest, TokensAreLearntAsTheyAre) {
  const char* line = R"({"ids":[2,5,6,7],"targets":[-1,6,-100,9]})";
  const Example example = Must(Parse(line)).examples.at(0);
  EXPECT_THAT(example.ids, ElementsAre(2, 5, 6, 7));
  EXPECT_THAT(example.targets, ElementsAre(kNoTarget, 6, kNoTarget, 9));
  const DataSet cut = Must(Parse(line, {.max_tokens = 3}));
  EXPECT_EQ(cut.cut, 1);
  EXPECT_THAT(cut.examples.at(0).targets, ElementsAre(kNoTarget, 6, kNoTarget));
  EXPECT_THAT(ErrorOf(line, {.on_long = OnLongLine::kError, .max_tokens = 3}),
              HasSubstr("data.long"));
  EXPECT_THAT(ErrorOf(R"({"ids":[2,5],"targets":[5]})"), HasSubstr("found 2 ids and 1 targets"));
  EXPECT_THAT(ErrorOf(R"({"ids":[-2],"targets":[5]})"), HasSubstr("found the token -2"));
  EXPECT_THAT(ErrorOf(R"({"ids":[2.5],"targets":[5]})"), HasSubstr("found 2.5 in 'ids'"));
  EXPECT_THAT(ErrorOf(R"({"ids":[2]})"), HasSubstr("found no 'targets'"));
  EXPECT_THAT(ErrorOf(R"({"ids":[2],"targets":[5],"text":"a"})"), HasSubstr("and also a text"));
}

TEST_F(DataTest, WhatIsTooLong) {
  const std::string text = R"({"text":"It was in July, 1805, and it was in the evening."})";
  const DataSet whole = Must(Parse(text));
  const DataSet pieces = Must(Parse(text, {.max_tokens = 8}));
  EXPECT_EQ(pieces.split, 1);
  std::string learnt;
  for (const Example& piece : pieces.examples) {
    EXPECT_LE(piece.rows(), 8);
    EXPECT_EQ(piece.ids[0], *tokenizer_->bos_id());
    learnt += LearntOf(piece);
  }
  EXPECT_EQ(learnt, LearntOf(whole.examples[0]));

  const auto rows = static_cast<int64_t>(Must(Parse(kTwoTurns)).examples[0].ids.size());
  const DataSet cut = Must(Parse(kTwoTurns, {.max_tokens = rows - 2}));
  EXPECT_EQ(cut.cut, 1);
  EXPECT_EQ(cut.examples[0].rows(), rows - 2);
  EXPECT_THAT(ErrorOf(kTwoTurns, {.max_tokens = 5}), HasSubstr("1 too long and dropped"));
  EXPECT_THAT(ErrorOf(kTwoTurns, {.on_long = OnLongLine::kDrop, .max_tokens = rows - 2}),
              HasSubstr("data.empty"));
  EXPECT_THAT(ErrorOf(kTwoTurns, {.on_long = OnLongLine::kError, .max_tokens = rows - 2}),
              HasSubstr("data.long"));
}

TEST_F(DataTest, LinesThatAreWrongAreNamed) {
  const std::string good = std::string(kTwoTurns) + "\n";
  EXPECT_THAT(ErrorOf(good + "no json\n"), HasSubstr("'lines.jsonl', line 2: found no JSON"));
  EXPECT_THAT(ErrorOf("[1]"), HasSubstr("entry 1: found number, expected a JSON object"));
  EXPECT_THAT(ErrorOf(good + "[1]"), HasSubstr("line 2: found array, expected a JSON object"));
  EXPECT_THAT(ErrorOf("[{}"), HasSubstr("begins with '[' and is not valid JSON (byte 4)"));
  EXPECT_THAT(ErrorOf("prompt,completion\n"), HasSubstr("one a line, or a file that is one"));
  const std::string deep(100'000, '[');
  EXPECT_THAT(ErrorOf(R"({"messages":)" + deep), HasSubstr("is nested more than 64 deep"));
  EXPECT_THAT(ErrorOf(R"({"text":"a","text":"b"})"), HasSubstr("has the key 'text' twice"));
  EXPECT_THAT(ErrorOf(std::string(R"({"text":"a"})") + '\0' + "x"), HasSubstr("byte 13"));
  EXPECT_THAT(ErrorOf(R"({"input":"a","output":"b"})"),
              HasSubstr("but 'input', 'output'; expected a conversation, a prompt with its "
                        "completion, a text, or tokens with their targets; members with other "
                        "names are named by --chat-key, --prompt-key"));
  EXPECT_THAT(ErrorOf(R"({"conversations":[{"from":"tool","value":"a"}]})"),
              HasSubstr("conversations[0].from is 'tool', expected human, gpt or system"));
  EXPECT_THAT(ErrorOf(R"({"prompt":[],"completion":"a"})"), HasSubstr("expected two texts or two"));
  EXPECT_THAT(ErrorOf(R"({"prompt":[],"completion":[]})"), HasSubstr("has 0 messages"));
  EXPECT_THAT(ErrorOf("{\"text\":\"\xff\"}"), HasSubstr("not UTF-8 (byte 9)"));
  EXPECT_THAT(ErrorOf(R"({"txt":"a"})"), HasSubstr("found none of the keys"));
  EXPECT_THAT(ErrorOf(R"({"text":1})"), HasSubstr("'text' is number, expected a string"));
  EXPECT_THAT(ErrorOf(R"({"prompt":"a"})"), HasSubstr("found no 'completion'"));
  EXPECT_THAT(ErrorOf(good + R"({"text":"a"})"), HasSubstr("another kind of line"));
  EXPECT_THAT(ErrorOf(R"({"messages":[{"role":"wizard","content":"a"}]})"), HasSubstr("data.line"));
  EXPECT_THAT(ErrorOf(R"({"messages":[{"role":"user","content":[{"type":"image"}]}]})"),
              HasSubstr("expected text only"));
}

TEST_F(DataTest, LinesWithoutAnAnswerAreCounted) {
  const std::string question = R"({"messages":[{"role":"user","content":"Who?"}]})";
  EXPECT_THAT(ErrorOf(question), HasSubstr("1 without a token to learn (the first is line 1)"));
  const DataSet set = Must(Parse(std::string(kTwoTurns) + "\n\n" + question + "\n"));
  EXPECT_EQ(set.Describe(),
            "2 lines, 1 examples, 1 without a token to learn (the first is line 3)");
  EXPECT_THAT(ErrorOf(question, {.strict = true}), HasSubstr("data.untrained"));
  EXPECT_THAT(ErrorOf(""), HasSubstr("data.empty"));
}

TEST(ExampleOrder, EachEpochHasAllExamplesInItsOwnOrder) {
  ExampleOrder order(20, /*seed=*/7, /*shuffle=*/true);
  std::vector<std::vector<size_t>> epochs(3);
  for (uint64_t k = 0; k < 60; ++k) epochs[k / 20].push_back(order.At(k));
  for (const auto& epoch : epochs) {
    EXPECT_EQ(std::set<size_t>(epoch.begin(), epoch.end()).size(), 20u);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
  // A run that continues sees the same, whatever it asks for first.
  ExampleOrder resumed(20, 7, true);
  EXPECT_EQ(resumed.At(47), epochs[2][7]);
  EXPECT_EQ(resumed.At(3), epochs[0][3]);
  ExampleOrder plain(3, 7, false);
  EXPECT_EQ(plain.At(4), 1u);
}

TEST(PackExamples, SideBySideWithPositionsOfTheirOwn) {
  const Example a{.ids = {5, 6, 7}, .targets = {-1, 7, -1}, .line = 1};
  const Example b{.ids = {8, 9}, .targets = {9, -1}, .line = 2};
  const Example none{.ids = {8, 9}, .targets = {-1, -1}, .line = 3};
  const Example* examples[] = {&a, &none, &b, &a};
  const std::vector<PackedStep> steps = PackExamples(examples, 5);
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_THAT(steps[0].rows.tokens, ElementsAre(5, 6, 7, 8, 9));
  EXPECT_THAT(steps[0].rows.pos, ElementsAre(0, 1, 2, 0, 1));
  EXPECT_THAT(steps[0].rows.slot, ElementsAre(0, 0, 0, 1, 1));
  EXPECT_THAT(steps[0].rows.wanted, ElementsAre(1, 3));
  EXPECT_THAT(steps[0].targets, ElementsAre(7, 9));
  EXPECT_THAT(steps[0].lines, ElementsAre(1, 2));
  EXPECT_THAT(steps[1].rows.slot, ElementsAre(0, 0, 0));
}

TEST(LearningRateOf, WarmsUpForAPartOfTheSteps) {
  TrainingConfig config;
  EXPECT_EQ(LearningRateOf(config, 200).warmup, 6);
  config.warmup_steps = 500;
  EXPECT_EQ(LearningRateOf(config, 200).warmup, 200);
}

}  // namespace
}  // namespace rullama
