#include "models/gemma4/chat/output_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "models/common/chat/prompt.h"
#include "models/gemma4/chat/output_parser_call.h"
#include "models/gemma4/chat/values.h"

namespace rullama::gemma4 {
namespace {

using Json = nlohmann::json;

// Events as lines: "content: x", "thinking: x", "call: f{"a":1}", "malformed: x". Text of the same
// kind that came in several events is joined.
std::vector<std::string> Parse(std::string_view text, size_t piece,
                               const OutputParserOptions& options = {}) {
  OutputParser parser(options);
  std::vector<OutputEvent> all;
  const auto take = [&](std::vector<OutputEvent> events) {
    for (OutputEvent& event : events) {
      const bool joins = !all.empty() && all.back().kind == event.kind &&
                         event.kind != OutputEvent::Kind::kToolCall && !all.back().malformed_call &&
                         !event.malformed_call;
      if (joins) {
        all.back().text += event.text;
      } else {
        all.push_back(std::move(event));
      }
    }
  };
  for (size_t at = 0; at < text.size(); at += piece) take(parser.Feed(text.substr(at, piece)));
  take(parser.Finish());
  std::vector<std::string> lines;
  for (const OutputEvent& event : all) {
    if (event.kind == OutputEvent::Kind::kToolCall) {
      lines.push_back("call: " + event.call.name + event.call.arguments.dump());
    } else {
      const char* kind = event.malformed_call                         ? "malformed: "
                         : event.kind == OutputEvent::Kind::kThinking ? "thinking: "
                                                                      : "content: ";
      lines.push_back(kind + event.text);
    }
  }
  return lines;
}

struct Case {
  std::string output;
  std::vector<std::string> events;
  OutputParserOptions options = {};
};

std::vector<Case> Cases() {
  const OutputParserOptions off{.report_thinking = false};
  const OutputParserOptions open{.starts_in_thought = true};
  return {
      {"", {}},
      {"Hello, world!\n", {"content: Hello, world!\n"}},
      {"a <b> < c <| d <|chan", {"content: a <b> < c <| d <|chan"}},
      {"<|channel>thought\nhmm\n so\n<channel|>\n\nYes.", {"thinking: hmm\n so", "content: Yes."}},
      {"<|channel>thought\nhmm<channel|>Yes.", {"content: Yes."}, off},
      {"<|channel>thought\n<channel|>Yes.", {"content: Yes."}},
      {"<|channel>thought<channel|>Yes.", {"content: Yes."}},
      {"<|channel><channel|>Yes.", {"content: Yes."}},
      {"<|channel>thoughtful<channel|>Yes.", {"thinking: thoughtful", "content: Yes."}},
      {"<|channel>th<channel|>Yes.", {"thinking: th", "content: Yes."}},
      {"<|channel>thought\nopen end \n", {"thinking: open end"}},
      {"<|channel>thoug", {"thinking: thoug"}},
      {"<channel|>Yes.", {"content: Yes."}},
      {"so it is<channel|>Yes.", {"thinking: so it is", "content: Yes."}, open},
      {"One. <|channel>thought\nx<channel|> Two.",
       {"content: One.", "thinking: x", "content: Two."}},
      {"<|tool_call>call:now{}<tool_call|>", {"call: now{}"}},
      {"Wait.\n<|tool_call>call:f{a:1}<tool_call|><|tool_call>call:g{b:<|\"|>x<|\"|>}<tool_call|>",
       {"content: Wait.", "call: f{\"a\":1}", "call: g{\"b\":\"x\"}"}},
      {"<|tool_call>call:f{a:1}<tool_call|><tool_call|>\n<|tool_response>", {"call: f{\"a\":1}"}},
      {"<|tool_call>call:f{a:1}", {"call: f{\"a\":1}"}},
      {"<|tool_call>call:f{a:1}<|tool_call>call:g{}<tool_call|>",
       {"call: f{\"a\":1}", "call: g{}"}},
      {"<|channel>thought\nI call<|tool_call>call:f{}<tool_call|>",
       {"thinking: I call", "call: f{}"}},
      {"<|tool_call>call:f{s:<|\"|>}<tool_call|> \"q\" \\ \n<|\"|>}<tool_call|>done",
       {R"(call: f{"s":"}<tool_call|> \"q\" \\ \n"})", "content: done"}},
      {"<|tool_call>call:f{d:{a:1.5,b:[1,<|\"|>x<|\"|>,null,true]},\"k\": \"v\\u00e9\", "
       "<|\"|>q<|\"|>:-2}"
       "<tool_call|>",
       {R"(call: f{"d":{"a":1.5,"b":[1,"x",null,true]},"k":"vé","q":-2})"}},
      {"<|tool_call>call:f{$filter:1,filter[id]:2,Due date:3,<|\"|>xml:lang<|\"|>:4,"
       "<|\"|><|\"|>:5}<tool_call|>",
       {R"(call: f{"":5,"$filter":1,"Due date":3,"filter[id]":2,"xml:lang":4})"}},
      {"<|tool_call>call:f{a:}<tool_call|> ok",
       {"malformed: <|tool_call>call:f{a:}<tool_call|>", "content: ok"}},
      {"<|tool_call>nonsense<tool_call|>", {"malformed: <|tool_call>nonsense<tool_call|>"}},
      {"<|tool_call>call:f{a:<|\"|>never closed}<tool_call|>",
       {"malformed: <|tool_call>call:f{a:<|\"|>never closed}<tool_call|>"}},
      {"text <tool_call|> and <|tool_response>",
       {"content: text <tool_call|> and <|tool_response>"}},
  };
}

TEST(OutputParser, EventsDoNotDependOnHowTheOutputIsCut) {
  for (const Case& test : Cases()) {
    for (const size_t piece : {1, 2, 3, 7, 1000}) {
      EXPECT_EQ(Parse(test.output, piece, test.options), test.events)
          << piece << " bytes at a time: " << test.output;
    }
  }
}

TEST(OutputParser, TextIsReleasedAsSoonAsItIsCertain) {
  OutputParser parser;
  EXPECT_EQ(parser.Feed("Hello").at(0).text, "Hello");
  EXPECT_TRUE(parser.Feed(" ").empty());       // a marker would swallow it
  EXPECT_TRUE(parser.Feed("<|tool").empty());  // may become a marker
  const auto events = parser.Feed("box>");
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].text, " <|toolbox>");
}

TEST(OutputParser, ReadsControlTokensWhereTheyMeanSomething) {
  OutputParser parser;
  EXPECT_TRUE(parser.Reads("<|channel>"));
  EXPECT_TRUE(parser.Reads("<channel|>"));
  EXPECT_TRUE(parser.Reads("<|tool_call>"));
  EXPECT_FALSE(parser.Reads("<|turn>"));
  EXPECT_FALSE(parser.Reads("<tool_call|>"));
  EXPECT_FALSE(parser.Reads("<|\"|>"));
  parser.Feed("<|tool_call>call:f{");
  EXPECT_TRUE(parser.Reads("<|\"|>"));
  EXPECT_TRUE(parser.Reads("<|turn>"));
  parser.Feed("}<tool_call|>");
  EXPECT_TRUE(parser.Reads("<|tool_response>"));
}

TEST(OutputParser, CanBeUsedAgainAfterFinish) {
  OutputParser parser({.starts_in_thought = true});
  for (int round = 0; round < 2; ++round) {
    const auto events = parser.Feed("x<channel|>y<|tool_call>call:f{");
    ASSERT_EQ(events.size(), 2u);
    EXPECT_EQ(events[0].kind, OutputEvent::Kind::kThinking);
    EXPECT_EQ(events[1].text, "y");
    EXPECT_TRUE(parser.Finish().at(0).malformed_call);
  }
}

TEST(OutputParser, MalformedCalls) {
  const std::vector<std::string> texts = {"",
                                          "call:",
                                          "call:f",
                                          "call:{}",
                                          "f{}",
                                          "call:f{",
                                          "call:f{a}",
                                          "call:f{a:1,}",
                                          "call:f{:1}",
                                          "call:f{a:Paris}",
                                          "call:f{a:1}}",
                                          "call:f[1]",
                                          "call:f{a:[1,]}",
                                          "call:f{a:{\"x\" 1}}",
                                          "call:f{a:\"\\q\"}",
                                          "call:f{a:\"x}",
                                          "call:f{a:0x1}",
                                          "call:f{a:\xFF}",
                                          "call:f{a:" + std::string(100000, '[') + "}",
                                          "call:f{a:1}trailing"};
  for (const std::string& text : texts) {
    EXPECT_FALSE(ParseToolCall(text)) << text.substr(0, 80);
  }
}

// The parser reads from the model the same text that the template writes for a call of the history.
TEST(OutputParser, ReadsBackWhatTheTemplateWrites) {
  std::ifstream file(RULLAMA_SOURCE_DIR "/tests/data/chat_generated.jsonl");
  size_t calls = 0;
  for (std::string line; std::getline(file, line);) {
    const Json vector = Json::parse(line);
    for (const Json& message : vector.at("messages")) {
      const Json list = message.value("tool_calls", Json::array());
      for (const Json& call : list) {
        const Json& arguments = call.at("function").at("arguments");
        if (!arguments.is_object()) continue;
        // A string that holds the string delimiter cannot be told from two strings.
        if (arguments.dump().find(R"(<|\"|>)") != std::string::npos) continue;
        chat::PromptWriter out;
        out.Template("call:f");
        WriteValue(arguments, KeyStyle::kBare, out);
        const std::string text = std::move(out).Finish().ToString();
        const auto parsed = ParseToolCall(text);
        ASSERT_TRUE(parsed) << text;
        EXPECT_EQ(parsed->arguments, arguments) << text;
        ++calls;
      }
    }
  }
  EXPECT_GT(calls, 20u);
}

}  // namespace
}  // namespace rullama::gemma4
