#include "web/calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
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
  std::string ErrorOf(const json& call) {
    const json answer = Answer(call);
    return answer.contains("error") ? answer["error"]["id"].get<std::string>() : "none";
  }
  int64_t Open() {
    return Value({{"call", "open"},
                  {"model", kModel},
                  {"settings", {{"context.capacity", "256"}, {"backend.name", "cpu"}}}})["engine"];
  }

  Calls calls_{{}};
};

TEST_F(CallsTest, AnswersInEventsAndAsAWhole) {
  const int64_t engine = Open();
  const json submitted =
      Value({{"call", "submit"},
             {"engine", engine},
             {"request", {{"prompt", "The prince"}, {"max_tokens", 12}, {"temperature", 0}}}});
  EXPECT_GT(submitted["prompt_tokens"], 1);
  std::string text;
  std::vector<std::string> kinds;
  for (;;) {
    const json event = Value({{"call", "next"}, {"generation", submitted["generation"]}});
    if (event.is_null()) break;
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
  const json submitted = Value({{"call", "submit"},
                                {"engine", engine},
                                {"request", {{"prompt", "The prince"}, {"max_tokens", 200}}}});
  Value({{"call", "cancel"}, {"generation", submitted["generation"]}});
  while (!Value({{"call", "next"}, {"generation", submitted["generation"]}}).is_null()) continue;
  const json answer = Value({{"call", "finish"}, {"generation", submitted["generation"]}});
  EXPECT_EQ(answer["reason"], "cancelled");
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
              HasSubstr("'stop' is missing or not a list of texts"));
  Value({{"call", "close"}, {"engine", engine}});
  EXPECT_EQ(ErrorOf({{"call", "tokenize"}, {"engine", engine}, {"text", "a"}}), "usage.request");
}

}  // namespace
}  // namespace rullama::web
