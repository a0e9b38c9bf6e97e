#include "models/gemma4/chat/answer_grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/constraint/automaton.h"
#include "models/gemma4/chat/output_parser.h"

namespace rullama::gemma4 {
namespace {

using constraint::Automaton;
using constraint::ConfigId;
using constraint::Symbol;

constexpr std::string_view kOther = "<bos>";  // a special token that no grammar names

// The symbols of a text in which markers are tokens.
std::vector<Symbol> SymbolsOfAnswer(std::string_view text) {
  std::vector<Symbol> symbols;
  while (!text.empty()) {
    size_t size = 1;
    auto symbol = static_cast<Symbol>(static_cast<uint8_t>(text[0]));
    const auto markers = AnswerMarkers();
    for (size_t i = 0; i < markers.size(); ++i) {
      if (!text.starts_with(markers[i])) continue;
      symbol = static_cast<Symbol>(constraint::kFirstMarker + i);
      size = markers[i].size();
    }
    if (text.starts_with(kOther)) {
      symbol = constraint::kOtherSpecial;
      size = kOther.size();
    }
    symbols.push_back(symbol);
    text.remove_prefix(size);
  }
  return symbols;
}

class AnswerGrammarTest : public testing::Test {
 protected:
  AnswerGrammarTest() {
    schema_ = constraint::Json::parse(R"({"type":"object","properties":{"ok":{"type":"boolean"}},)"
                                      R"("required":["ok"]})");
    tools_ = constraint::Json::parse(R"([
      {"type":"function","function":{"name":"weather","parameters":{"type":"object",
        "properties":{"city":{"type":"string"},"days":{"enum":[1,3]}},"required":["city"]}}},
      {"type":"function","function":{"name":"now"}}])");
  }

  void AddTools(AnswerForm& form) const {
    for (size_t i = 0; i < tools_.size(); ++i) {
      form.tools.push_back({&tools_[i], "tools[" + std::to_string(i) + "]"});
    }
  }
  static void Expect(const AnswerForm& form, const std::vector<std::string>& accepted,
                     const std::vector<std::string>& refused) {
    const auto grammar = MakeAnswerGrammar(form);
    ASSERT_TRUE(grammar) << grammar.error().ToString();
    Automaton automaton(grammar->grammar);
    const auto accepts = [&](std::string_view text) {
      ConfigId config = automaton.start();
      for (const Symbol symbol : SymbolsOfAnswer(text)) config = automaton.Step(config, symbol);
      return automaton.may_end(config);
    };
    for (const std::string& text : accepted) EXPECT_TRUE(accepts(text)) << text;
    for (const std::string& text : refused) EXPECT_FALSE(accepts(text)) << text;
  }

  const std::string kCall = "<|tool_call>call:weather{city:<|\"|>Tula<|\"|>,days:3}<tool_call|>";
  const std::string kNow = "<|tool_call>call:now{}<tool_call|>";
  constraint::Json schema_;
  constraint::Json tools_;
};

TEST_F(AnswerGrammarTest, SchemaAlone) {
  Expect({.schema = &schema_}, {R"({"ok":true})"},
         {"", "text", R"({"ok":true} )", "<|channel>thought\n<channel|>{\"ok\":true}", kNow});
}

TEST_F(AnswerGrammarTest, ThoughtsAreFree) {
  Expect({.schema = &schema_, .thinking = true},
         {R"({"ok":true})", "<|channel>thought\nAny \"text\" {\n<channel|>{\"ok\":false}"},
         {"<|channel>thought\n<channel|>", "<|channel>{\"ok\":true}",
          "<|channel>thought\n<channel|>text", "<|channel>a<|tool_call><channel|>{\"ok\":true}"});
  Expect({.schema = &schema_, .thinking = true, .opens_thought = true},
         {"so<channel|>{\"ok\":false}"}, {R"({"ok":true})"});
}

TEST_F(AnswerGrammarTest, CallsOnly) {
  AnswerForm form{.tool_use = ToolUse::kRequired};
  AddTools(form);
  Expect(form, {kCall, kNow, kCall + kNow},
         {"", "text", "text" + kNow, kNow + "text", "<|tool_call>call:other{}<tool_call|>",
          "<|tool_call>call:now{x:1}<tool_call|>", "<|tool_call>call:weather{}<tool_call|>",
          "<|tool_call>call:weather{city:<|\"|>a<|\"|>,days:2}<tool_call|>",
          "<|tool_call>call:weather{city:\"a\"}<tool_call|>", "<|tool_call>call:now{}"});
  form.parallel_calls = false;
  Expect(form, {kCall, kNow}, {kCall + kNow});
  form.tools.erase(form.tools.begin());
  Expect(form, {kNow}, {kCall});
}

TEST_F(AnswerGrammarTest, CallsWithinFreeText) {
  AnswerForm form;
  AddTools(form);
  Expect(form,
         {"", "any text <bos> \xFF", kCall, "text" + kCall + kNow,
          "<|channel>thought\nso<channel|>text", "<|\"|><tool_call|>"},
         {kCall + "text", "<|tool_call>call:other{}<tool_call|>", "<|tool_call>"});
  form.tool_use = ToolUse::kNone;
  Expect(form, {"", "text", "<bos>"}, {kCall, "<|tool_call>"});
}

TEST_F(AnswerGrammarTest, CallsOrValue) {
  AnswerForm form{.schema = &schema_};
  AddTools(form);
  Expect(form, {R"({"ok":true})", kNow}, {"", "text", kNow + R"({"ok":true})"});
}

// The parser understands every text that the grammar accepts.
TEST_F(AnswerGrammarTest, CallsAreParsed) {
  for (const std::string& text : {kCall, kNow}) {
    OutputParser parser;
    std::vector<OutputEvent> events = parser.Feed(text);
    for (const OutputEvent& event : parser.Finish()) events.push_back(event);
    ASSERT_EQ(events.size(), 1U) << text;
    EXPECT_EQ(events[0].kind, OutputEvent::Kind::kToolCall);
    EXPECT_FALSE(events[0].malformed_call);
  }
}

TEST_F(AnswerGrammarTest, NamesWhatItRefuses) {
  AnswerForm form{.tool_use = ToolUse::kRequired};
  tools_[0]["function"]["parameters"]["properties"]["a<|\"|>b"] = true;
  tools_[0]["function"]["strict"] = true;
  AddTools(form);
  auto grammar = MakeAnswerGrammar(form);
  ASSERT_FALSE(grammar);
  EXPECT_EQ(grammar.error().id, "schema.unsupported");
  EXPECT_THAT(grammar.error().message, testing::HasSubstr("tools[0].function.parameters"));
  tools_[0]["function"]["name"] = "a{b";
  grammar = MakeAnswerGrammar(form);
  ASSERT_FALSE(grammar);
  EXPECT_EQ(grammar.error().id, "schema.unsupported");
  tools_[0] = constraint::Json::parse(R"({"function":{"name":"f","parameters":{"type":"array"}}})");
  grammar = MakeAnswerGrammar(form);
  ASSERT_FALSE(grammar);
  EXPECT_EQ(grammar.error().id, "schema.invalid");
}

// Only a tool that is `strict` is refused for a schema that cannot be enforced whole.
TEST_F(AnswerGrammarTest, HoldsCallsToWhatCanBeEnforced) {
  tools_[0]["function"]["parameters"]["properties"]["Due date"] = {{"type", "string"},
                                                                   {"not", {{"const", "a"}}}};
  AnswerForm form{.tool_use = ToolUse::kRequired};
  AddTools(form);
  const auto grammar = MakeAnswerGrammar(form);
  ASSERT_TRUE(grammar) << grammar.error().ToString();
  EXPECT_THAT(grammar->unenforced,
              testing::ElementsAre("tools[0].function.parameters.properties.Due date.not"));
  Expect(form, {"<|tool_call>call:weather{city:<|\"|>b<|\"|>,Due date:<|\"|>a<|\"|>}<tool_call|>"},
         {"<|tool_call>call:weather{city:1}<tool_call|>",
          "<|tool_call>call:weather{city:<|\"|>b<|\"|>,Due date:1}<tool_call|>"});
  tools_[0]["function"]["strict"] = true;
  const auto refused = MakeAnswerGrammar(form);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().id, "schema.unsupported");
}

TEST_F(AnswerGrammarTest, MarkersInTextOfAnswersAreText) {
  OutputParser parser;
  std::vector<OutputEvent> events =
      parser.FeedText("{\"a\":\"<|tool_call>call:now{}<tool_call|>\"}");
  for (const OutputEvent& event : parser.Finish()) events.push_back(event);
  std::string text;
  for (const OutputEvent& event : events) {
    EXPECT_EQ(event.kind, OutputEvent::Kind::kContent);
    text += event.text;
  }
  EXPECT_EQ(text, "{\"a\":\"<|tool_call>call:now{}<tool_call|>\"}");
}

}  // namespace
}  // namespace rullama::gemma4
