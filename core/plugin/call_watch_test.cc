#include "core/plugin/call_watch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>

namespace rullama {
namespace {

using std::chrono::milliseconds;

void Sleep() { std::this_thread::sleep_for(milliseconds(1)); }

TEST(CallWatch, SpeaksUpOnceForEachFunctionThatTakesTooLong) {
  std::atomic<int> compilations = 0, executions = 0;
  CallWatch watch(
      milliseconds(5), [](const WatchedCall& call) { return std::string(call.function); },
      [&](const std::string& text) { ++(text == "plan_compile" ? compilations : executions); });
  for (int round = 0; round < 3; ++round) {
    for (const std::string_view function : {"plan_compile", "plan_execute"}) {
      const CallWatch::Scope scope(watch, {.function = function});
      const auto& calls = function == "plan_compile" ? compilations : executions;
      do Sleep();
      while (calls == 0);
    }
  }
  EXPECT_EQ(compilations, 1);
  EXPECT_EQ(executions, 1);
}

// Many short calls are not one long one.
TEST(CallWatch, IsQuietAboutCallsThatEnd) {
  std::atomic<int> late = 0;
  {
    CallWatch watch(
        std::chrono::hours(1), [](const WatchedCall&) { return std::string(); },
        [&](const std::string&) { ++late; });
    for (int i = 0; i < 100; ++i) {
      const CallWatch::Scope scope(watch, {.function = "buffer_write"});
    }
  }
  EXPECT_EQ(late, 0);
}

// A log that nobody reads, such as a full pipe, must not hold up the plugin.
TEST(CallWatch, ACallEndsWhileItIsToldAbout) {
  std::atomic<bool> told = false, ended = false;
  CallWatch watch(
      milliseconds(5), [](const WatchedCall& call) { return std::string(call.function); },
      [&](const std::string&) {
        told = true;
        while (!ended) Sleep();
      });
  {
    const CallWatch::Scope scope(watch, {.function = "plan_compile"});
    while (!told) Sleep();
  }
  ended = true;
}

TEST(CallWatch, OpsAreCountedByKind) {
  Graph graph;
  EXPECT_EQ(DescribeOps(graph), "");
  const auto add = [&graph](OpKind kind, int count) {
    for (int i = 0; i < count; ++i) graph.ops.push_back({kind, {}, {}, OpAttrs(kind)});
  };
  add(OpKind::kRmsNorm, 1);
  add(OpKind::kMatMul, 3);
  EXPECT_EQ(DescribeOps(graph), "3 matmul, 1 rms_norm");
  add(OpKind::kAttention, 2);
  add(OpKind::kRope, 2);
  add(OpKind::kCopy, 2);
  add(OpKind::kUnary, 2);
  add(OpKind::kAffine, 1);
  EXPECT_TRUE(DescribeOps(graph).ends_with(" and 1 other")) << DescribeOps(graph);
  add(OpKind::kSoftmax, 1);
  EXPECT_TRUE(DescribeOps(graph).starts_with("3 matmul, ")) << DescribeOps(graph);
  EXPECT_TRUE(DescribeOps(graph).ends_with(" and 2 others")) << DescribeOps(graph);
}

}  // namespace
}  // namespace rullama
