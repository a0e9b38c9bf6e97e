// Saves, restores, copies and rewinds slots of a graph whose logits depend on the last tokens.
#include <gmock/gmock.h>

#include <array>

#include "core/base/must_test_util.h"
#include "core/runtime/sequence_feeder.h"
#include "core/runtime/step_test_util.h"

namespace rullama {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kRing = 4;
constexpr int64_t kLong = 32;

struct MemoryGraphOptions {
  int64_t long_rows = kLong;
  std::string prefix = {};  // of the names of all ops
};

// Lowers the logit of each of the last 4 and the last 32 tokens by how often it was seen. The first
// look-back is a ring that wraps, the second state is as long as a sequence.
Graph MemoryGraph(const MemoryGraphOptions& options = {}) {
  GraphBuilder b("memory");
  const auto [tokens, pos, slot, past] = AddStepInputs(b);
  const ValueId table = b.Constant("table", {DType::kF32, {kVocabulary, kVocabulary}});
  ValueId logits = b.Add(ops::GatherRows{.table = table, .ids = tokens}, options.prefix + "plain");
  const std::array<int64_t, 2> lengths = {kRing, options.long_rows};
  for (size_t i = 0; i < lengths.size(); ++i) {
    const std::string name = i == 0 ? "ring" : "long";
    const ValueId state = b.State(name, {DType::kI32, {kSlots, lengths[i]}});
    logits = b.Add(ops::Penalties{.logits = logits,
                                  .history = state,
                                  .tokens = tokens,
                                  .q_pos = pos,
                                  .q_slot = slot,
                                  .kv_pos = pos,
                                  .kv_slot = slot,
                                  .past = past,
                                  .last_n = lengths[i],
                                  .repeat = 1,
                                  .frequency = i == 0 ? 1.0F : 0.01F,
                                  .presence = 0},
                   options.prefix + name + ".penalised");
    b.Add(ops::StateAppend{.state = state, .rows = tokens, .pos = pos, .slot = slot},
          options.prefix + name + ".next");
  }
  b.Output(output_names::kLogits, b.Add(ops::Copy{.x = logits}, options.prefix + "logits"));
  return *std::move(b).Finish();
}

class MemorySession {
 public:
  explicit MemorySession(const MemoryGraphOptions& options = {}) {
    session_ = Must(Session::Create(
        MemoryGraph(options), weights_,
        {.devices = {devices_.Open()}, .policy = {}, .limits = {.max_t = 3, .max_r = 1}}));
  }
  Session* operator->() const { return session_.get(); }

  // Feeds `count` tokens that depend on the seed and the position alone.
  void Feed(int32_t slot, int32_t count, int32_t seed = 0) const {
    std::vector<int32_t> tokens;
    for (int32_t i = 0; i < count; ++i) {
      const int32_t p = session_->past(slot) + i;
      tokens.push_back(static_cast<int32_t>((seed + p * p / 3 + p) % kVocabulary));
    }
    const Status fed = SequenceFeeder(*session_, {.slot = slot})
                           .Feed(tokens, DemandMode::kStateOnly, DemandMode::kPerOutput, {});
    ASSERT_TRUE(fed) << fed.error().ToString();
  }
  // Logits after one more token.
  [[nodiscard]] std::vector<float> Next(int32_t slot) const {
    Feed(slot, 1);
    std::vector<float> logits(kVocabulary);
    const Status read =
        session_->ReadOutput(output_names::kLogits, std::as_writable_bytes(std::span(logits)));
    EXPECT_TRUE(read) << read.error().ToString();
    return logits;
  }
  // The same after `count` tokens in a session of their own.
  static std::vector<float> Expected(int32_t count, int32_t seed = 0) {
    const MemorySession fresh;
    fresh.Feed(0, count, seed);
    return fresh.Next(0);
  }

 private:
  CountingWeights weights_;
  ReferenceDevices devices_;
  std::unique_ptr<Session> session_;
};

template <typename T>
void ExpectError(const Result<T>& result, std::string_view id, const std::string& part) {
  ASSERT_FALSE(result) << "expected " << id;
  EXPECT_EQ(result.error().id, id);
  EXPECT_THAT(result.error().message, HasSubstr(part));
}

TEST(SessionSnapshotTest, RestoresEverySlotAtEveryPosition) {
  for (const int32_t p : {0, 1, 3, 4, 5, 11, 31}) {
    const std::vector<float> expected = MemorySession::Expected(p);
    for (int32_t target = 0; target < kSlots; ++target) {
      const MemorySession session;
      session.Feed(1, p);
      const Snapshot snapshot = Must(session->Save(1, p));
      EXPECT_EQ(snapshot.position(), p);
      EXPECT_EQ(snapshot.bytes(), sizeof(int32_t) * static_cast<size_t>(p + std::min(p, 4)));
      for (int32_t slot = 0; slot < kSlots; ++slot) {
        session->ForgetSlot(slot);
        session.Feed(slot, 9 + slot, /*seed=*/5 + slot);
      }
      ASSERT_TRUE(session->Restore(target, snapshot));
      EXPECT_EQ(session->past(target), p);
      EXPECT_EQ(session.Next(target), expected) << p << " tokens in slot " << target;
      for (int32_t slot = 0; slot < kSlots; ++slot) {
        if (slot == target) continue;
        EXPECT_EQ(session.Next(slot), MemorySession::Expected(9 + slot, 5 + slot))
            << "slot " << slot << " was changed";
      }
    }
  }
}

TEST(SessionSnapshotTest, RestoresIntoASessionThatHasNotRun) {
  const MemorySession session;
  session.Feed(2, 7);
  const Snapshot snapshot = Must(session->Save(2, 7));
  const MemorySession fresh;
  ASSERT_TRUE(fresh->Restore(0, snapshot));
  EXPECT_EQ(fresh.Next(0), MemorySession::Expected(7));
}

TEST(SessionSnapshotTest, GoesBackAsFarAsTheRingAllows) {
  const MemorySession session;
  session.Feed(0, 4);
  ASSERT_TRUE(session->SetPast(0, 2));
  EXPECT_EQ(session.Next(0), MemorySession::Expected(2));
  session.Feed(0, 4);  // 7 tokens
  ExpectError(session->SetPast(0, 5), "snapshot.rewind", "expected 0 or at least 6");
  ExpectError(session->Save(0, 5), "snapshot.rewind", "written up to position 7");
  ExpectError(session->SetPast(0, 8), "session.internal", "position 8");
  ExpectError(session->SetPast(0, -1), "session.internal", "position -1");
  ExpectError(session->SetPast(3, 0), "session.internal", "slot 3 of 3");
  EXPECT_EQ(session->past(0), 7) << "a refused call changes nothing";
  ASSERT_TRUE(session->SetPast(0, 6));
  ExpectError(session->SetPast(0, 5), "snapshot.rewind", "position 5");
  EXPECT_EQ(session.Next(0), MemorySession::Expected(6));
  ASSERT_TRUE(session->SetPast(0, 0));
  EXPECT_EQ(session.Next(0), MemorySession::Expected(0));
}

TEST(SessionSnapshotTest, SavesOneRowBackButGoesNoFurtherThen) {
  const MemorySession session;
  session.Feed(0, 9);
  const Snapshot snapshot = Must(session->Save(0, 8));
  ASSERT_TRUE(session->Restore(1, snapshot));
  ExpectError(session->SetPast(1, 7), "snapshot.rewind", "position 7");
  EXPECT_EQ(session.Next(1), MemorySession::Expected(8));
}

TEST(SessionSnapshotTest, ForkedSlotsGoOnByThemselves) {
  for (const int32_t p : {3, 4, 10}) {
    const MemorySession session;
    session.Feed(2, p);
    session.Feed(0, 12, 3);
    ASSERT_TRUE(session->Fork(2, 0));
    ASSERT_TRUE(session->Fork(2, 2));
    EXPECT_EQ(session.Next(0), MemorySession::Expected(p));
    session.Feed(0, 6, 1);
    EXPECT_EQ(session.Next(2), MemorySession::Expected(p));
  }
}

TEST(SessionSnapshotTest, RingsAreEnoughWhereTheSlotHoldsTheRest) {
  const MemorySession session;
  session.Feed(0, 10);
  const Snapshot rings = Must(session->Save(0, 10, SnapshotContent::kRings));
  EXPECT_EQ(rings.bytes(), sizeof(int32_t) * 4);
  session.Feed(0, 9, 2);
  ASSERT_TRUE(session->Restore(0, rings));
  EXPECT_EQ(session.Next(0), MemorySession::Expected(10));
  ASSERT_TRUE(session->Restore(0, rings)) << "more than once";
  EXPECT_EQ(session.Next(0), MemorySession::Expected(10));
}

TEST(SessionSnapshotTest, RingsAreCompletedFromTheirSlot) {
  const MemorySession session;
  session.Feed(0, 10);
  const Snapshot rings = Must(session->Save(0, 10, SnapshotContent::kRings));
  session.Feed(0, 9, 2);
  const Snapshot complete = Must(session->Complete(rings));
  EXPECT_EQ(complete.position(), 10);
  ASSERT_TRUE(session->SetPast(0, 18));
  session.Feed(0, 3, 1);
  ASSERT_TRUE(session->Restore(1, complete)) << "in another slot";
  EXPECT_EQ(session.Next(1), MemorySession::Expected(10));
  session->ForgetSlot(0);
  ExpectError(session->Complete(rings), "snapshot.stale", "slot 0");
}

TEST(SessionSnapshotTest, RingsAreRefusedWhereTheRestIsGone) {
  const MemorySession session;
  session.Feed(0, 10);
  const Snapshot rings = Must(session->Save(0, 10, SnapshotContent::kRings));
  session.Feed(1, 12);
  ExpectError(session->Restore(1, rings), "snapshot.stale", "slot 1");
  const MemorySession other;
  other.Feed(0, 12);
  ExpectError(other->Restore(0, rings), "snapshot.stale", "slot 0");
  ASSERT_TRUE(session->SetPast(0, 9));
  session.Feed(0, 3, 1);
  ExpectError(session->Restore(0, rings), "snapshot.stale", "position 10");
  const Snapshot later = Must(session->Save(0, 12, SnapshotContent::kRings));
  session->ForgetSlot(0);
  ExpectError(session->Restore(0, later), "snapshot.stale", "position 12");
}

TEST(SessionSnapshotTest, CapacitiesMayDifferUntilTheShorterOneWraps) {
  const MemorySession session;
  session.Feed(0, 16);
  const Snapshot at16 = Must(session->Save(0, 16));
  session.Feed(0, 1);
  const Snapshot at17 = Must(session->Save(0, 17));
  const MemorySession shorter({.long_rows = 16});
  ExpectError(shorter->Restore(0, at17), "snapshot.mismatch", "32 rows of i32");
  ASSERT_TRUE(shorter->Restore(0, at16));
  const Snapshot again = Must(shorter->Save(0, 16));
  ASSERT_TRUE(session->Restore(2, again));
  EXPECT_EQ(session.Next(2), MemorySession::Expected(16));
}

// Two graphs with the same states, of which the second runs on a device of its own.
TEST(SessionSnapshotTest, WritesEveryDeviceAndNoticesThatTheyDiffer) {
  const CountingWeights weights;
  ReferenceDevices devices;
  std::vector<SessionGraph> graphs;
  graphs.push_back({.graph = MemoryGraph()});
  graphs.push_back({.graph = MemoryGraph({.prefix = "host."})});
  SessionOptions options{.devices = {devices.Open(), devices.Open()}, .policy = {}, .limits = {}};
  options.policy.host_device = 1;
  for (const Op& op : graphs[1].graph.ops) {
    options.policy.on_host.insert(graphs[1].graph.value(op.results[0]).name);
  }
  const auto session = Must(Session::Create(std::move(graphs), weights, std::move(options)));
  const std::vector<int32_t> tokens = {1, 2, 3};
  for (const GraphHandle graph : {GraphHandle{0}, GraphHandle{1}}) {
    session->ForgetSlot(0);
    ASSERT_TRUE(session->Run(StepRows::Consecutive(tokens, 0, 0, DemandMode::kPerOutput, graph)));
  }
  const Snapshot snapshot = Must(session->Save(0, 3));
  session->ForgetSlot(0);
  const std::vector<int32_t> others = {3, 2, 1};
  ASSERT_TRUE(
      session->Run(StepRows::Consecutive(others, 0, 0, DemandMode::kPerOutput, GraphHandle{1})));
  ExpectError(session->Save(0, 3), "snapshot.copies", "two devices");
  ASSERT_TRUE(session->Restore(0, snapshot));
  ASSERT_TRUE(session->Save(0, 3)) << "both have the same rows again";
}

}  // namespace
}  // namespace rullama
