#include "web/calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

namespace rullama::web {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kModel = RULLAMA_SOURCE_DIR "/tests/data/tiny-e2b-Q4_K_M.gguf";

class CallsTest : public testing::Test {
 protected:
  json Answer(const json& call) { return json::parse(calls_.Run(call.dump())); }
  json Value(const json& call) {
    const json answer = Answer(call);
    EXPECT_TRUE(answer.contains("value")) << answer;
    return answer.value("value", json());
  }
  std::string MessageOf(const json& call) {
    const json answer = Answer(call);
    return answer.contains("error") ? answer["error"]["message"].get<std::string>() : "none";
  }
  std::string ErrorOf(const json& call) {
    const json answer = Answer(call);
    return answer.contains("error") ? answer["error"]["id"].get<std::string>() : "none";
  }
  int64_t Open(const std::string& capacity = "256") {
    const json settings = {
        {"context.capacity", capacity}, {"context.slots", "1"}, {"backend.name", "cpu"}};
    return Value({{"call", "open"}, {"model", kModel}, {"settings", settings}})["engine"];
  }

  json Submit(int64_t engine, const json& request) {
    return Value({{"call", "submit"}, {"engine", engine}, {"request", request}});
  }
  // All events from now on.
  std::vector<json> EventsOf(const json& generation) {
    std::vector<json> all;
    for (;;) {
      const json events = Value({{"call", "next"}, {"generation", generation}});
      if (events.is_null()) return all;
      all.insert(all.end(), events.begin(), events.end());
      if (events.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  json Finish(const json& generation) {
    return Value({{"call", "finish"}, {"generation", generation}});
  }

  Calls calls_{{}};
};

TEST_F(CallsTest, AnswersInEventsAndAsAWhole) {
  const int64_t engine = Open();
  const json submitted =
      Submit(engine, {{"prompt", "The prince"}, {"max_tokens", 12}, {"temperature", 0}});
  EXPECT_GT(submitted["prompt_tokens"], 1);
  std::string text;
  std::vector<std::string> kinds;
  for (const json& event : EventsOf(submitted["generation"])) {
    if (kinds.empty() || kinds.back() != event["kind"]) kinds.push_back(event["kind"]);
    if (event["kind"] == "text") text += event["text"];
  }
  EXPECT_THAT(kinds, ElementsAre("progress", "text"));
  const json finish = {{"call", "finish"}, {"generation", submitted["generation"]}};
  const json answer = Value(finish);
  EXPECT_EQ(answer["text"], text);
  EXPECT_EQ(answer["tokens"], 12);
  EXPECT_EQ(answer["reason"], "length");
  EXPECT_EQ(ErrorOf(finish), "usage.request");
}

TEST_F(CallsTest, EndsACancelledRequest) {
  const int64_t engine = Open();
  const json generation =
      Submit(engine, {{"prompt", "The prince"}, {"max_tokens", 200}})["generation"];
  Value({{"call", "cancel"}, {"generation", generation}});
  EventsOf(generation);
  EXPECT_EQ(Finish(generation)["reason"], "cancelled");
}

// More tokens than wait for a reader in the engine. The first answer has the only slot.
const json kLong = {
    {"prompt", "The prince"}, {"max_tokens", 400}, {"temperature", 0}, {"repeat_penalty", 1}};

TEST_F(CallsTest, AnAnswerThatNobodyReadsDoesNotHoldUpTheNext) {
  const int64_t engine = Open("1024");
  const json first = Submit(engine, kLong)["generation"];
  const json second = Submit(engine, kLong)["generation"];
  EXPECT_GT(EventsOf(second).size(), 256);
  EXPECT_EQ(Finish(second)["tokens"], 400);
  EXPECT_GT(EventsOf(first).size(), 256);
  EXPECT_EQ(Finish(first)["tokens"], 400);
}

TEST_F(CallsTest, CancelsAnAnswerThatWaits) {
  const int64_t engine = Open("1024");
  const json first = Submit(engine, kLong)["generation"];
  const json second = Submit(engine, kLong)["generation"];
  EXPECT_TRUE(Value({{"call", "next"}, {"generation", second}}).empty());
  calls_.Cancel(second);
  EventsOf(second);
  EXPECT_EQ(Finish(second)["reason"], "cancelled");
  EventsOf(first);
  EXPECT_EQ(Finish(first)["reason"], "length");
  calls_.Cancel(second);
  calls_.Cancel(-1);
}

TEST_F(CallsTest, EndsTheAnswersOfAClosedEngine) {
  const int64_t engine = Open("1024");
  const json generation = Submit(engine, kLong)["generation"];
  Value({{"call", "close"}, {"engine", engine}});
  EventsOf(generation);
  EXPECT_EQ(Finish(generation)["reason"], "cancelled");
}

// Tokens of single bytes are no UTF-8 by themselves; answers always are.
TEST_F(CallsTest, AnswersInUtf8) {
  const int64_t engine = Open();
  int replaced = 0;
  for (int id = 0; id < 512; ++id) {
    const json text =
        Value({{"call", "detokenize"}, {"engine", engine}, {"ids", json::array({id})}});
    if (text.get<std::string>().find("\xEF\xBF\xBD") != std::string::npos) ++replaced;
  }
  EXPECT_GT(replaced, 0);
}

TEST_F(CallsTest, TokenizesBothWays) {
  const int64_t engine = Open();
  const json ids = Value({{"call", "tokenize"}, {"engine", engine}, {"text", "The prince"}});
  EXPECT_FALSE(ids.empty());
  EXPECT_EQ(Value({{"call", "detokenize"}, {"engine", engine}, {"ids", ids}}), "The prince");
}

TEST_F(CallsTest, EmbedsATextInTheWidthOfTheModel) {
  const int64_t engine = Open();
  const json row = Value({{"call", "embed"}, {"engine", engine}, {"text", "The prince"}});
  EXPECT_EQ(row.size(), 256);
}

TEST_F(CallsTest, SaysWhatIsWrong) {
  const auto answer = json::parse(calls_.Run("{"));
  EXPECT_EQ(answer["error"]["id"], "usage.request");
  EXPECT_EQ(ErrorOf({{"call", "dance"}}), "usage.request");
  EXPECT_EQ(ErrorOf({{"call", "open"}}), "usage.request");
  EXPECT_EQ(ErrorOf({{"call", "open"}, {"model", "/there/is/none.gguf"}}), "io.open");
  EXPECT_EQ(ErrorOf({{"call", "next"}, {"generation", 7}}), "usage.request");
  const int64_t engine = Open();
  const json submit = {{"call", "submit"}, {"engine", engine}};
  const auto with = [&submit](const json& request) {
    json call = submit;
    call["request"] = request;
    return call;
  };
  EXPECT_EQ(ErrorOf(submit), "usage.request");
  EXPECT_EQ(ErrorOf(with({{"prompt", 1}})), "usage.request");
  EXPECT_EQ(ErrorOf(with({{"prompt", "a"}, {"temperature", "hot"}})), "usage.request");
  EXPECT_EQ(ErrorOf(with({{"prompt", "a"}, {"media", {{{"kind", "smell"}}}}})), "usage.request");
  EXPECT_THAT(Answer(with({{"prompt", "a"}, {"stop", 3}}))["error"]["message"].get<std::string>(),
              HasSubstr("'stop' is missing or is not a list of texts"));
  Value({{"call", "close"}, {"engine", engine}});
  EXPECT_EQ(ErrorOf({{"call", "tokenize"}, {"engine", engine}, {"text", "a"}}), "usage.request");
}

TEST_F(CallsTest, RefusesValuesOfOtherTypesAndRanges) {
  const int64_t engine = Open();
  const auto message = [&](const std::string& name, const json& value) {
    json request = {{"prompt", "a"}, {"max_tokens", 1}};
    request[name] = value;
    return MessageOf({{"call", "submit"}, {"engine", engine}, {"request", request}});
  };
  for (const json& value : {json(12.7), json(true), json(1e300), json("12")}) {
    EXPECT_THAT(message("max_tokens", value), HasSubstr("'max_tokens' is missing or is not"));
    EXPECT_THAT(message("top_k", value), HasSubstr("'top_k' is missing or is not"));
    EXPECT_THAT(MessageOf({{"call", "close"}, {"engine", value}}), HasSubstr("'engine'"));
  }
  EXPECT_THAT(message("max_tokens", uint64_t{1} << 63), HasSubstr("'max_tokens'"));
  EXPECT_THAT(message("seed", uint64_t{1} << 63), HasSubstr("'seed'"));
  EXPECT_THAT(message("temperature", true), HasSubstr("'temperature'"));
  EXPECT_THAT(message("thinking", 1), HasSubstr("'thinking'"));
  EXPECT_THAT(message("media", "cat.bmp"), HasSubstr("'media'"));
  EXPECT_THAT(message("temprature", 1), HasSubstr("there is no member 'temprature'"));
  EXPECT_THAT(MessageOf({{"call", "detokenize"}, {"engine", engine}, {"ids", {int64_t{1} << 32}}}),
              HasSubstr("'ids'"));
  EXPECT_THAT(MessageOf({{"call", "submit"}, {"engine", engine}, {"request", "abc"}}),
              HasSubstr("'request' is missing or is not an object"));
  EXPECT_THAT(MessageOf({{"call", "tokenize"}, {"engine", engine}, {"txt", "a"}}),
              HasSubstr("there is no member 'txt', expected one of: call, engine, text"));
  EXPECT_EQ(MessageOf({{"call", "finish"}, {"generation", 7}}), "there is no generation 7");
  EXPECT_EQ(ErrorOf(json::array()), "usage.request");
}

}  // namespace
}  // namespace rullama::web
