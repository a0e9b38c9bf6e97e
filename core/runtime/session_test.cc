// Tests what a session accepts, keeps and refuses, on a graph that counts.
#include "core/runtime/session.h"

#include <gmock/gmock.h>

#include <array>
#include <numeric>

#include "core/base/must_test_util.h"
#include "core/runtime/sequence_feeder.h"
#include "core/runtime/step_test_util.h"

namespace rullama {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr StepLimits kSixRows{.max_t = 6, .max_r = 3};

void ExpectRefused(const Status& status, const std::string& part) {
  ASSERT_FALSE(status) << "expected an error with: " << part;
  EXPECT_EQ(status.error().id, "session.internal");
  EXPECT_THAT(status.error().message, HasSubstr(part));
}

// Rows of slots 0 and 1 after `past` rows of each, alternating; the last of each slot is wanted.
StepRows TwoSlots(std::vector<int32_t> first, std::vector<int32_t> second, int32_t past) {
  StepRows rows;
  for (size_t i = 0; i < first.size(); ++i) {
    for (const int32_t slot : {0, 1}) {
      rows.tokens.push_back(slot == 0 ? first[i] : second[i]);
      rows.pos.push_back(past + static_cast<int32_t>(i));
      rows.slot.push_back(slot);
    }
  }
  const auto count = static_cast<int32_t>(rows.tokens.size());
  rows.wanted = {count - 2, count - 1};
  return rows;
}

TEST(SessionTest, SlotsOfAStepAreIndependent) {
  const CountingSession counting(kSixRows);
  ASSERT_TRUE(counting.get().Run(TwoSlots({1, 2}, {4, 6}, 0)));
  EXPECT_THAT(counting.Tokens(2), ElementsAre(3, 7));
  EXPECT_EQ(counting.get().past(0), 2);
  EXPECT_EQ(counting.get().past(1), 2);
  EXPECT_EQ(counting.get().past(2), 0);
  counting.get().ForgetSlot(0);
  EXPECT_EQ(counting.get().past(0), 0);
  EXPECT_EQ(counting.get().past(1), 2);
}

TEST(SessionTest, SlotsMayHoldDifferentNumbersOfRows) {
  const CountingSession counting(kSixRows);
  Session& session = counting.get();
  const std::vector<int32_t> three = {1, 2, 3};
  ASSERT_TRUE(session.Run(StepRows::Consecutive(three, 0, 1, DemandMode::kPerOutput)));
  StepRows rows;
  rows.tokens = {4, 5};
  rows.pos = {0, 3};
  rows.slot = {0, 1};
  rows.wanted = {0, 1};
  ASSERT_TRUE(session.Run(rows));
  EXPECT_THAT(counting.Tokens(2), ElementsAre(5, 6));
  EXPECT_EQ(session.past(0), 1);
  EXPECT_EQ(session.past(1), 4);
  EXPECT_EQ(session.past(2), 0);
}

TEST(SessionTest, AGraphThatDoesNotExtendThePastRepeatsItsPositions) {
  const CountingWeights weights;
  ReferenceDevices devices;
  std::vector<SessionGraph> graphs;
  graphs.push_back({.graph = CountingGraph()});
  graphs.push_back({.graph = CountingGraph(), .buckets = {2}, .extends_past = false});
  auto created = Session::Create(std::move(graphs), weights,
                                 {.devices = {devices.Open()}, .policy = {}, .limits = kSixRows});
  ASSERT_TRUE(created) << created.error().ToString();
  Session& session = **created;
  const int32_t token = 0;
  const float bias = 0;
  ASSERT_TRUE(session.SetInput(kBiased, std::as_bytes(std::span(&token, 1))));
  ASSERT_TRUE(session.SetInput(kBias, std::as_bytes(std::span(&bias, 1))));
  SequenceFeeder first(session, {.graph = {0}, .slot = 2});
  SequenceFeeder second(session, {.graph = {1}, .slot = 2});
  const std::vector<int32_t> three = {1, 2, 3};
  ASSERT_TRUE(first.Feed(three, DemandMode::kStateOnly, DemandMode::kPerOutput, {}));
  for (int repetition = 0; repetition < 2; ++repetition) {
    ASSERT_TRUE(second.RunStep(std::span(three).first(2), DemandMode::kPerOutput));
    EXPECT_EQ(session.past(2), 3);
  }
  EXPECT_EQ(session.past(0), 0) << "the feeder appends to its own slot";
  ExpectRefused(second.RunStep(three, DemandMode::kPerOutput), "3 tokens");
}

TEST(SessionTest, RefusesStepsThatDoNotFitAndStaysUsable) {
  const CountingSession counting(kSixRows);
  Session& session = counting.get();
  const std::vector<int32_t> seven(7, 1);
  const auto rows = [](std::vector<int32_t> tokens, int32_t past = 0, int32_t slot = 0) {
    return StepRows::Consecutive(tokens, past, slot, DemandMode::kPerOutput);
  };
  ExpectRefused(session.Run(rows({})), "0 tokens");
  ExpectRefused(session.Run(rows(seven)), "7 tokens");
  StepRows wanted = rows({1, 2, 3, 4});
  wanted.wanted = {0, 1, 2, 3};
  ExpectRefused(session.Run(wanted), "4 wanted rows; expected 1 to 6 rows and up to 3 wanted");
  wanted.wanted = {4};
  ExpectRefused(session.Run(wanted), "wanted row 4 of 4");
  wanted.wanted = {};
  ExpectRefused(session.Run(wanted), "0 wanted rows");
  ExpectRefused(session.Run(rows({1}, 1)), "position 1, which does not continue");
  ExpectRefused(session.Run(rows({1}, 0, 3)), "slot 3");
  ExpectRefused(session.Run(rows({1}, 0, -1)), "slot -1");
  StepRows other = rows({1});
  other.graph = GraphHandle{1};
  ExpectRefused(session.Run(other), "graph 1 of 1");
  EXPECT_EQ(session.past(0), 0);
  ASSERT_TRUE(session.Run(rows({5})));
  EXPECT_THAT(counting.Tokens(1), ElementsAre(6));
}

TEST(SessionTest, AnInputIsKeptForPlansThatAreCompiledLater) {
  const CountingSession counting(kSixRows);
  Session& session = counting.get();
  ASSERT_TRUE(session.Run(StepRows::Consecutive(std::vector{1}, 0, 0, DemandMode::kPerOutput)));
  counting.SetBias(0, 2);
  ASSERT_TRUE(session.Run(StepRows::Consecutive(std::vector{2}, 1, 0, DemandMode::kPerOutput)));
  EXPECT_THAT(counting.Tokens(1), ElementsAre(0));
  const std::vector<int32_t> five = {1, 2, 3, 4, 5};
  ASSERT_TRUE(session.Run(StepRows::Consecutive(five, 2, 0, DemandMode::kPerOutput)));
  EXPECT_THAT(counting.Tokens(1), ElementsAre(0));
  EXPECT_EQ(session.Stats()->plans, 2U);
}

// Plans are made for 1, 2, 4, ... wanted rows, at most those of the limits, and rows may be wanted
// several times.
TEST(SessionTest, WantedRowsHaveBuckets) {
  const CountingSession counting(kSixRows);
  Session& session = counting.get();
  auto run = [&session, past = 0](size_t wanted) mutable {
    StepRows rows = StepRows::Consecutive(std::vector{2, 5}, past, 0, DemandMode::kPerOutput);
    rows.wanted.assign(wanted, 1);
    past += 2;
    return session.Run(rows);
  };
  const std::vector<std::pair<size_t, uint64_t>> plans_after = {
      {1, 1U}, {2, 2U}, {1, 2U}, {3, 3U}, {2, 3U}};
  for (const auto& [wanted, plans] : plans_after) {
    const Status status = run(wanted);
    ASSERT_TRUE(status) << status.error().ToString();
    EXPECT_EQ(counting.Tokens(wanted), std::vector<int32_t>(wanted, 6));
    EXPECT_EQ(session.Stats()->plans, plans);
  }
  ASSERT_TRUE(session.Prepare(2, DemandMode::kPerOutput, GraphHandle{}, 2));
  EXPECT_EQ(session.Stats()->plans, 3U);
}

// The rows of a step that are all wanted.
StepRows AllWanted(int32_t count, int32_t slot) {
  const std::vector<int32_t> tokens(static_cast<size_t>(count), 1);
  StepRows rows = StepRows::Consecutive(tokens, 0, slot, DemandMode::kPerOutput);
  rows.wanted.resize(tokens.size());
  std::iota(rows.wanted.begin(), rows.wanted.end(), 0);
  return rows;
}

TEST(SessionTest, PromptsThatBecomeLongerShareAnArena) {
  const CountingSession counting({.max_t = 128, .max_r = 128});
  Session& session = counting.get();
  const uint64_t predicted = Must(session.PredictMemory())[0].work;
  ASSERT_TRUE(session.Run(AllWanted(20, 0)));
  const uint64_t arenas = session.Stats()->arena_bytes;
  EXPECT_EQ(arenas, predicted);
  ASSERT_TRUE(session.Run(AllWanted(100, 1)));
  EXPECT_EQ(session.Stats()->plans, 2U);
  EXPECT_EQ(session.Stats()->arena_bytes, arenas);
}

TEST(SessionTest, RefusesInputsAndOutputsOfOtherNamesAndSizes) {
  const CountingSession counting(kSixRows);
  Session& session = counting.get();
  std::vector<std::byte> bytes(4);
  ExpectRefused(session.SetInput("weather", bytes), "no graph has an input 'weather'");
  ExpectRefused(session.SetInput(kBias, std::span(bytes).first(3)), "found 3 bytes");
  ExpectRefused(session.ReadOutput(output_names::kToken, bytes), "no step has run");
  ASSERT_TRUE(session.Run(StepRows::Consecutive(std::vector{1}, 0, 0, DemandMode::kPerOutput)));
  ExpectRefused(session.ReadOutput("weather", bytes), "no output 'weather'");
  bytes.resize(8);
  ExpectRefused(session.ReadOutput(output_names::kToken, bytes), "has 4 bytes, asked for 8");
}

TEST(SessionTest, ASegmentReadsWhatAnotherDeviceComputed) {
  const CountingSession counting(kSixRows, true);
  ASSERT_TRUE(counting.get().Run(TwoSlots({1, 2}, {4, 6}, 0)));
  EXPECT_THAT(counting.Tokens(2), ElementsAre(3, 7));
  ASSERT_TRUE(counting.get().Run(TwoSlots({5}, {0}, 2)));
  EXPECT_THAT(counting.Tokens(2), ElementsAre(6, 1));
}

TEST(SessionTest, NeedsAGraphWithSlots) {
  const CountingWeights weights;
  ReferenceDevices devices;
  const auto create = [&](Graph graph, SessionOptions options) {
    return Session::Create(std::move(graph), weights, std::move(options)).map([](auto) {});
  };
  ExpectRefused(create(CountingGraph(), {}), "a session needs");
  ExpectRefused(
      create(CountingGraph(), {.devices = {devices.Open()}, .policy = {}, .limits = {.max_t = 0}}),
      "a session needs");
  ExpectRefused(create(Graph{}, {.devices = {devices.Open()}, .policy = {}, .limits = {}}),
                "no input 'past'");
}

// What the host has read from devices of ReadCountingQuery(), since the tests run one at a time.
int g_reads = 0;
decltype(rl_plugin_v1::buffer_read) g_buffer_read = nullptr;

// The reference backend, with a count of reads.
int32_t ReadCountingQuery(const rl_host_v1* host, const rl_plugin_v1** plugin, rl_error* error) {
  static rl_plugin_v1 counting;
  const int32_t code = ReferencePluginQuery(host, plugin, error);
  if (code != RL_OK) return code;
  counting = **plugin;
  g_buffer_read = counting.buffer_read;
  counting.buffer_read = [](auto... args) {
    ++g_reads;
    return g_buffer_read(args...);
  };
  *plugin = &counting;
  return code;
}

TEST(SessionTest, SmallOutputsOfAStepTakeOneRead) {
  const CountingWeights weights;
  ReferenceDevices devices(ReadCountingQuery);
  const std::unique_ptr<Session> session = Must(Session::Create(
      CountingGraph(), weights,
      {.devices = {devices.Open()}, .policy = {}, .limits = {.max_t = 1024}, .slots = {}}));
  const int32_t biased = 7;
  const float bias = 0.5F;
  ASSERT_TRUE(session->SetInput(kBiased, std::as_bytes(std::span(&biased, 1))));
  ASSERT_TRUE(session->SetInput(kBias, std::as_bytes(std::span(&bias, 1))));
  const auto read = [&](std::string_view name, auto& value) {
    return session->ReadOutput(name, std::as_writable_bytes(std::span(&value, 1)));
  };
  for (const int32_t given : {3, 5}) {
    ASSERT_TRUE(session->Run(
        StepRows::Consecutive(std::span(&given, 1), session->past(0), 0, DemandMode::kPerOutput)));
    g_reads = 0;
    int32_t token = 0;
    float sum = 0;
    std::array<float, kVocabulary> logits{};
    ASSERT_TRUE(read(output_names::kLogitsSum, sum));
    ASSERT_TRUE(read(output_names::kToken, token));
    EXPECT_EQ(g_reads, 1);
    EXPECT_EQ(token, given + 1);
    EXPECT_EQ(sum, 1.5F);
    // 1,024 rows of logits are too large for the record.
    ASSERT_TRUE(read(output_names::kLogits, logits));
    EXPECT_EQ(g_reads, 2);
    EXPECT_EQ(logits[static_cast<size_t>(given) + 1], 1);
  }
}

class SpanList final : public StepObserver {
 public:
  struct Seen {
    StepSpan span;
    std::string name;
  };
  void OnSpan(const StepSpan& span) override { seen.push_back({span, std::string(span.name)}); }
  [[nodiscard]] std::vector<Seen> Of(StepSpan::Kind kind) const {
    std::vector<Seen> found;
    for (const Seen& one : seen) {
      if (one.span.kind == kind) found.push_back(one);
    }
    return found;
  }
  std::vector<Seen> seen;
};

TEST(SessionTest, AnObserverSeesStepsSegmentsCopiesAndReads) {
  using Kind = StepSpan::Kind;
  SpanList list;
  const CountingSession counting(kSixRows, /*split=*/true, &list);
  ASSERT_TRUE(counting.get().Run(TwoSlots({1, 2}, {4, 6}, 0)));
  EXPECT_THAT(counting.Tokens(2), ElementsAre(3, 7));
  ASSERT_EQ(list.Of(Kind::kCompile).size(), 1u);
  const auto inputs = list.Of(Kind::kInputs);
  const auto segments = list.Of(Kind::kSegment);
  const auto copies = list.Of(Kind::kCopy);
  const auto steps = list.Of(Kind::kStep);
  const auto reads = list.Of(Kind::kRead);
  ASSERT_EQ(inputs.size(), 2u);
  ASSERT_EQ(segments.size(), 2u);
  ASSERT_EQ(copies.size(), 1u);
  ASSERT_EQ(steps.size(), 1u);
  ASSERT_EQ(reads.size(), 1u);
  EXPECT_EQ(segments[0].span.device, 1u) << "the lookup is on the second device";
  EXPECT_EQ(segments[1].span.device, 0u);
  EXPECT_EQ(segments[0].span.ops, 1u);
  EXPECT_EQ(copies[0].name, "logits.plain");
  EXPECT_EQ(copies[0].span.bytes, 4 * kVocabulary * sizeof(float));
  EXPECT_EQ(steps[0].span.rows, 4);
  EXPECT_EQ(steps[0].span.wanted, 2);
  EXPECT_EQ(reads[0].span.bytes, 2 * sizeof(int32_t));
  EXPECT_LE(steps[0].span.begin, inputs[0].span.begin);
  EXPECT_LE(inputs[0].span.end, segments[0].span.begin);
  EXPECT_LE(segments[0].span.end, inputs[1].span.begin);
  EXPECT_LE(inputs[1].span.end, copies[0].span.begin);
  EXPECT_LE(copies[0].span.end, segments[1].span.begin);
  EXPECT_LE(segments[1].span.end, steps[0].span.end);
  EXPECT_LE(steps[0].span.end, reads[0].span.begin);
}

TEST(SessionTest, AStepThatFailsHasNoSpan) {
  SpanList list;
  const CountingSession counting(kSixRows, /*split=*/false, &list);
  ASSERT_FALSE(counting.get().Run(TwoSlots({1}, {4}, 3)));
  EXPECT_TRUE(list.seen.empty());
}

}  // namespace
}  // namespace rullama
