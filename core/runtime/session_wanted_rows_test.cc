// Tests that a session runs what its last rows alone need as a step of few rows, and only where
// that gives the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/must_test_util.h"
#include "core/runtime/session.h"
#include "core/runtime/step_test_util.h"

namespace rullama {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

constexpr int64_t kHeadWidth = 4;
constexpr int64_t kCached = 64;  // rows of a slot
constexpr StepLimits kPromptLimits{.max_t = 48, .max_r = 4};

// A row attends to the rows before it, and many ops follow.
Graph CachedGraph() {
  GraphBuilder b("cached");
  const auto [tokens, pos, slot, past] = AddStepInputs(b);
  const ValueId table = b.Constant("table", {DType::kF32, {kVocabulary, kVocabulary}});
  const ValueId embd = b.Add(ops::GatherRows{.table = table, .ids = tokens}, "embd");
  const ValueId x = b.Add(ops::ReshapeTo(embd, {kVocabulary / kHeadWidth, kHeadWidth}), "x");
  const TensorType cache(DType::kF32, {kSlots, kCached, kVocabulary / kHeadWidth, kHeadWidth});
  const ValueId k_cache = b.State("k_cache", cache), v_cache = b.State("v_cache", cache);
  const ValueId mix = b.Add(ops::WithRows(ops::Attention{.q = x,
                                                         .k_new = x,
                                                         .v_new = x,
                                                         .k_state = k_cache,
                                                         .v_state = v_cache,
                                                         .mask = RL_MASK_CAUSAL,
                                                         .window = 0,
                                                         .scale = 1},
                                          ops::AttentionRows{pos, slot, pos, slot, past}),
                            "mix");
  ValueId y = b.Add(ops::ReshapeTo(mix, {kVocabulary}), "flat");
  for (int i = 0; i < 50; ++i) y = b.Add(ops::Softcap{.x = y, .cap = 8}, "y" + std::to_string(i));
  b.Add(ops::StateAppend{.state = k_cache, .rows = x, .pos = pos, .slot = slot}, "k_cache.next");
  b.Add(ops::StateAppend{.state = v_cache, .rows = x, .pos = pos, .slot = slot}, "v_cache.next");
  b.Output("y", y);
  return Must(std::move(b).Finish());
}

// The segments of the last step: rows and wanted rows of each.
class Segments final : public StepObserver {
 public:
  void OnSpan(const StepSpan& span) override {
    if (span.kind == StepSpan::Kind::kSegment) seen.emplace_back(span.rows, span.wanted);
    if (span.kind == StepSpan::Kind::kCopy) ++copies;
  }
  std::vector<std::pair<int64_t, int64_t>> seen;
  int copies = 0;
};

class CachedSession {
 public:
  explicit CachedSession(size_t lanes = 0) {
    SessionOptions options{.devices = {devices_.Open()}, .policy = {}, .limits = kPromptLimits};
    if (lanes == 0) options.observer = &segments;
    options.lanes = lanes;
    session_ = Must(Session::Create(CachedGraph(), weights_, std::move(options)));
  }
  // The output of a step, a row for each wanted one.
  std::vector<float> Run(const StepRows& rows) {
    segments.seen.clear();
    const Status run = session_->Run(rows);
    EXPECT_TRUE(run) << run.error().ToString();
    return Read(rows.wanted.size(), {});
  }
  std::vector<float> RunInLane(const StepRows& rows) {
    EXPECT_TRUE(session_->Start(0, rows));
    EXPECT_TRUE(session_->Finish(0));
    return Read(rows.wanted.size(), 0);
  }

  [[nodiscard]] Session& get() const { return *session_; }

  Segments segments;

 private:
  std::vector<float> Read(size_t wanted, StepLane lane) {
    std::vector<float> y(wanted * kVocabulary);
    EXPECT_TRUE(session_->ReadOutput("y", std::as_writable_bytes(std::span(y)), lane));
    return y;
  }

  CountingWeights weights_;
  ReferenceDevices devices_;
  std::unique_ptr<Session> session_;
};

// `count` rows of each of `slots` slots, which alternate, after `past` rows.
StepRows Rows(int32_t count, int32_t past, int32_t slots = 1) {
  StepRows rows;
  for (int32_t i = 0; i < count; ++i) {
    for (int32_t slot = 0; slot < slots; ++slot) {
      rows.tokens.push_back((past + i * i + slot) % static_cast<int32_t>(kVocabulary));
      rows.pos.push_back(past + i);
      rows.slot.push_back(slot);
    }
  }
  return rows;
}

int32_t Last(const StepRows& rows) { return static_cast<int32_t>(rows.tokens.size()) - 1; }

std::vector<float> LastRow(const std::vector<float>& y) { return {y.end() - kVocabulary, y.end()}; }

// With another row wanted in addition to the last one the step is one segment.
std::vector<float> InOnePiece(CachedSession& session, StepRows rows) {
  rows.wanted = {0, Last(rows)};
  std::vector<float> y = session.Run(rows);
  EXPECT_EQ(session.segments.seen.size(), 1U);
  return LastRow(y);
}

TEST(SessionOfWantedRows, TheLastRowIsAStepOfItsOwn) {
  CachedSession apart, whole;
  for (const int32_t past : {0, 20}) {
    StepRows rows = Rows(past == 0 ? 20 : 33, past);
    rows.wanted = {Last(rows)};
    const std::vector<float> y = apart.Run(rows);
    EXPECT_THAT(apart.segments.seen, ElementsAre(Pair(std::ssize(rows.tokens), 1), Pair(1, 1)));
    EXPECT_EQ(apart.segments.copies, 0) << "on one device nothing is copied";
    EXPECT_EQ(y, InOnePiece(whole, rows));
  }
}

TEST(SessionOfWantedRows, OfSeveralSlots) {
  CachedSession apart, whole;
  StepRows rows = Rows(17, 0, 2);
  rows.wanted = {Last(rows) - 1, Last(rows)};
  const std::vector<float> y = apart.Run(rows);
  EXPECT_THAT(apart.segments.seen, ElementsAre(Pair(34, 2), Pair(2, 2)));
  EXPECT_EQ(LastRow(y), InOnePiece(whole, rows));
}

// As of requests for several answers to one prompt.
TEST(SessionOfWantedRows, RowsThatAreWantedTwiceStayInTheStep) {
  CachedSession session, whole;
  StepRows rows = Rows(33, 0);
  rows.wanted = {Last(rows), Last(rows)};
  const std::vector<float> y = session.Run(rows);
  EXPECT_THAT(session.segments.seen, ElementsAre(Pair(33, 2)));
  EXPECT_EQ(LastRow(y), InOnePiece(whole, rows));
}

TEST(SessionOfWantedRows, OfSlotsWithDifferentNumbersOfRows) {
  CachedSession apart, whole;
  StepRows rows = Rows(17, 0, 2);
  for (const int32_t pos : {17, 18, 19}) {
    rows.tokens.push_back(pos % 5);
    rows.pos.push_back(pos);
    rows.slot.push_back(1);
  }
  rows.wanted = {Last(rows)};  // none of slot 0
  const std::vector<float> y = apart.Run(rows);
  EXPECT_THAT(apart.segments.seen, ElementsAre(Pair(37, 1), Pair(1, 1)));
  EXPECT_EQ(y, InOnePiece(whole, rows));
}

TEST(SessionOfWantedRows, RowsBeforeTheLastStayInTheStep) {
  CachedSession session;
  StepRows rows = Rows(33, 0);
  rows.wanted = {Last(rows) - 1};
  session.Run(rows);
  EXPECT_THAT(session.segments.seen, ElementsAre(Pair(33, 1)));
}

TEST(SessionOfWantedRows, AfterTheEndOfACacheThatWrapsNothingIsApart) {
  CachedSession session;
  for (const int32_t past : {0, 32}) {
    StepRows rows = Rows(32, past);
    rows.wanted = {Last(rows)};
    session.Run(rows);
    EXPECT_EQ(session.segments.seen.size(), 2U);
  }
  StepRows rows = Rows(32, 64);
  rows.wanted = {Last(rows)};
  session.Run(rows);
  EXPECT_EQ(session.segments.seen.size(), 1U);
}

TEST(SessionOfWantedRows, HaveAPlanOfTheirOwnOnlyWhereTheyAreApart) {
  const auto plans_of = [](Session& session) {
    for (const int32_t before_last : {0, 1}) {
      session.ForgetSlot(0);
      StepRows rows = Rows(33, 0);
      rows.wanted = {Last(rows) - before_last};
      EXPECT_TRUE(session.Run(rows));
    }
    return Must(session.Stats()).plans;
  };
  const CountingSession few_ops(kPromptLimits);
  EXPECT_EQ(plans_of(few_ops.get()), 1U);
  CachedSession many_ops;
  EXPECT_EQ(plans_of(many_ops.get()), 2U);
}

TEST(SessionOfWantedRows, LanesGiveTheSame) {
  CachedSession apart, lanes(1);
  StepRows rows = Rows(40, 0);
  rows.wanted = {Last(rows)};
  EXPECT_EQ(lanes.RunInLane(rows), apart.Run(rows));
  EXPECT_EQ(apart.segments.seen.size(), 2U);
}

}  // namespace
}  // namespace rullama
