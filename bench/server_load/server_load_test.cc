#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

#include "bench/server_load/answer_events.h"
#include "bench/server_load/load_client.h"
#include "bench/server_load/load_plan.h"
#include "bench/server_load/summary.h"

namespace rullama::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::string_view kAnswer =
    "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n"
    "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}],\"usage\":null}\r\n\r\n"
    ": a comment\n\n"
    "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"b\"}}]}\n\n"
    "data: {\"choices\":[{\"delta\":{}}]}\n\n"
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2}}\n\n"
    "data: [DONE]\n\n";

TEST(AnswerEvents, CountTextsHoweverTheBodyIsCut) {
  for (size_t step = 1; step <= kAnswer.size(); ++step) {
    AnswerEvents events;
    int texts = 0;
    for (size_t at = 0; at < kAnswer.size(); at += step)
      texts += events.Take(kAnswer.substr(at, step));
    EXPECT_EQ(texts, 2) << step;
    EXPECT_EQ(events.tokens(), 2);
    EXPECT_EQ(events.prompt_tokens(), 7);
    EXPECT_TRUE(events.done());
  }
}

TEST(AnswerEvents, RefuseErrorsOfTheServerAndWhatIsNoJson) {
  const auto error_of = [](std::string_view event) -> std::string {
    try {
      AnswerEvents().Take(event);
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "none";
  };
  EXPECT_THAT(error_of("data: {\"error\":{\"message\":\"full\"}}\n"), HasSubstr("full"));
  EXPECT_THAT(error_of("data: {\"choices\":\n"), HasSubstr("not a JSON"));
  EXPECT_THAT(error_of("data: [1]\n"), HasSubstr("not a JSON object"));
  EXPECT_EQ(error_of("data: {\"choices\":{}}\n"), "none");
}

TEST(LoadPlan, IsMadeFromItsSeedAlone) {
  const Lengths lengths{.prompt_words = 12, .shared_words = 5, .tokens = 9};
  const auto plan = ClosedLoop(lengths, 3, 40), again = ClosedLoop(lengths, 3, 40);
  ASSERT_EQ(plan.size(), 3U);
  for (size_t i = 0; i < plan.size(); ++i) {
    EXPECT_EQ(plan[i].prompt, again[i].prompt);
    EXPECT_EQ(std::ranges::count(plan[i].prompt, ' '), 11);
    EXPECT_EQ(plan[i].tokens, 9);
    EXPECT_EQ(plan[i].start, 0);
  }
  EXPECT_NE(plan[0].prompt, plan[1].prompt);
  // Five words in common, of which the last differs in none.
  size_t end = 0;
  for (int i = 0; i < 5; ++i) end = plan[0].prompt.find(' ', end + 1);
  EXPECT_THAT(plan[1].prompt, StartsWith(plan[0].prompt.substr(0, end)));
}

TEST(LoadPlan, MixedLengthsHaveTheirMeans) {
  const Lengths lengths{.prompt_words = kMeanPrompt, .tokens = kMeanAnswer, .mixed = true};
  constexpr size_t kRequests = 4000;
  double words = 0, tokens = 0, squares = 0;
  for (const PlannedRequest& request : ClosedLoop(lengths, kRequests, 1)) {
    words += 1.0 + static_cast<double>(std::ranges::count(request.prompt, ' '));
    tokens += static_cast<double>(request.tokens);
    squares += static_cast<double>(request.tokens) * static_cast<double>(request.tokens);
  }
  // Means of 4,000 lengths spread by 2 %; the cut at eight times the mean takes 4 % away.
  EXPECT_NEAR(words / kRequests, kMeanPrompt, 0.1 * kMeanPrompt);
  EXPECT_NEAR(tokens / kRequests, kMeanAnswer, 0.1 * kMeanAnswer);
  EXPECT_GT(std::sqrt(squares / kRequests), 1.3 * kMeanAnswer);
}

TEST(LoadPlan, ArrivalsAreRandomAtTheirRate) {
  const auto plan = OpenLoop({}, 2000, 50, 7);
  EXPECT_TRUE(std::ranges::is_sorted(plan, {}, &PlannedRequest::start));
  EXPECT_NEAR(plan.back().start, 2000 / 50.0, 4);
  // A part of 1/e of exponential gaps is longer than their mean.
  int longer = 0;
  for (size_t i = 1; i < plan.size(); ++i) longer += plan[i].start - plan[i - 1].start > 1 / 50.0;
  EXPECT_NEAR(longer / 2000.0, 0.368, 0.05);
}

TEST(Summary, CountsWhatWasAnsweredAndNamesWhatFailed) {
  std::vector<Sample> samples;
  for (int i = 1; i <= 100; ++i) {
    samples.push_back(
        {.first_text = i / 1000.0, .gaps = {0.001}, .total = 1, .tokens = 2, .prompt_tokens = 3});
  }
  samples.push_back({.tokens = 1000, .error = "503: full"});
  const auto summary = Summary(samples, 4);
  EXPECT_EQ(summary["requests"], 101);
  EXPECT_EQ(summary["failed"], 1);
  EXPECT_EQ(summary["tokens"], 200);
  EXPECT_EQ(summary["tokens_per_second"], 50);
  EXPECT_EQ(summary["ttft_ms"]["p50"], 51);
  EXPECT_EQ(summary["ttft_ms"]["p99"], 100);
  EXPECT_EQ(summary["ttft_ms"]["max"], 100);
  EXPECT_EQ(summary["errors"], nlohmann::json({"503: full"}));
  EXPECT_TRUE(Spread({}).is_null());
}

TEST(TargetOf, TakesThisMachineAlone) {
  EXPECT_EQ(TargetOf("http://127.0.0.1:8081/").port, 8081);
  EXPECT_EQ(TargetOf("http://[::1]:8082").address, "::1");
  EXPECT_EQ(TargetOf("http://localhost").port, 80);
  EXPECT_THROW(TargetOf("http://192.0.2.1:80"), std::runtime_error);
  EXPECT_THROW(TargetOf("https://127.0.0.1"), std::runtime_error);
}

}  // namespace
}  // namespace rullama::bench
