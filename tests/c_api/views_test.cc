// Each member of an event and of a completion is shown to C, also those that the tiny models never
// fill.
#include "engine/c_api/views.h"

#include <gtest/gtest.h>

namespace rullama::c_api {
namespace {

TEST(Views, ShowEachMemberOfAnEvent) {
  const Event event = {.kind = Event::Kind::kToolCall,
                       .text = "text",
                       .call = {.name = "look", .arguments = R"({"at": 1})"},
                       .done = 3,
                       .total = 4};
  const rullama_event view = ViewOf(event);
  EXPECT_EQ(view.struct_size, sizeof view);
  EXPECT_EQ(view.kind, RULLAMA_EVENT_TOOL_CALL);
  EXPECT_STREQ(view.text, "text");
  EXPECT_EQ(view.text_size, 4U);
  EXPECT_STREQ(view.call.name, "look");
  EXPECT_STREQ(view.call.arguments, R"({"at": 1})");
  EXPECT_EQ(view.done, 3);
  EXPECT_EQ(view.total, 4);
}

Completion Full() {
  Completion full;
  full.text = "answer";
  full.thoughts = "thought";
  full.tool_calls = {{.name = "a", .arguments = "{}"}, {.name = "b", .arguments = "[]"}};
  full.ids = {5, 6};
  full.logprobs = {{.drawn = {5, -1}, .top = {{5, -1}, {7, -2}}},
                   {.drawn = {6, -3}, .top = {{8, -0.5F}}}};
  full.reason = StopReason::kStopped;
  full.seed = 11;
  full.prompt_tokens = 12;
  full.cached_tokens = 13;
  full.queue_seconds = 0.25;
  full.prompt_seconds = 0.5;
  full.generate_seconds = 0.75;
  return full;
}

TEST(Views, ShowEachMemberOfACompletion) {
  const Completion completion = Full();
  CompletionView shown;
  const rullama_completion& view = *shown.Show(completion);
  EXPECT_EQ(view.struct_size, sizeof view);
  EXPECT_EQ(view.reason, RULLAMA_STOP_STOPPED);
  EXPECT_STREQ(view.text, "answer");
  EXPECT_EQ(view.text_size, 6U);
  EXPECT_STREQ(view.thoughts, "thought");
  EXPECT_EQ(view.thoughts_size, 7U);
  ASSERT_EQ(view.tool_call_count, 2U);
  EXPECT_STREQ(view.tool_calls[1].name, "b");
  EXPECT_STREQ(view.tool_calls[1].arguments, "[]");
  ASSERT_EQ(view.id_count, 2U);
  EXPECT_EQ(view.ids[1], 6);
  ASSERT_EQ(view.logprob_count, 2U);
  EXPECT_EQ(view.logprobs[0].drawn.token, 5);
  ASSERT_EQ(view.logprobs[0].top_count, 2U);
  EXPECT_EQ(view.logprobs[0].top[1].token, 7);
  ASSERT_EQ(view.logprobs[1].top_count, 1U);
  EXPECT_EQ(view.logprobs[1].top[0].token, 8);
  EXPECT_EQ(view.logprobs[1].top[0].logprob, -0.5F);
  EXPECT_EQ(view.seed, 11);
  EXPECT_EQ(view.prompt_tokens, 12);
  EXPECT_EQ(view.cached_tokens, 13);
  EXPECT_EQ(view.queue_seconds, 0.25);
  EXPECT_EQ(view.prompt_seconds, 0.5);
  EXPECT_EQ(view.generate_seconds, 0.75);
}

TEST(Views, ShowTheLastCompletionOnly) {
  const Completion first = Full();
  Completion second = Full();
  second.tool_calls.pop_back();
  second.logprobs.pop_back();
  CompletionView shown;
  shown.Show(first);
  const rullama_completion& view = *shown.Show(second);
  EXPECT_EQ(view.tool_call_count, 1U);
  EXPECT_EQ(view.logprob_count, 1U);
  EXPECT_EQ(view.logprobs[0].top[1].token, 7);
}

}  // namespace
}  // namespace rullama::c_api
