// Tests sessions whose tables stay in their file: steps read the rows that they look up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/must_test_util.h"
#include "core/runtime/session.h"
#include "core/runtime/step_test_util.h"

namespace rullama {
namespace {

using ::testing::ElementsAre;

constexpr StepLimits kTableSteps{.max_t = 6, .max_r = 3};

// The table of the counting graph, of which the bytes of single rows alone can be had.
class TableInFile final : public WeightSource {
 public:
  [[nodiscard]] Result<std::span<const std::byte>> Bytes(const Value& /*constant*/) const override {
    return MakeError(ErrorKind::kRuntime, "test.whole", "the whole table was asked for");
  }
  [[nodiscard]] Status Copy(const Value& constant, uint64_t first,
                            std::span<std::byte> to) const override {
    if (fails) return MakeError(ErrorKind::kIo, "io.read", "cannot read");
    ++reads;
    RL_ASSIGN_OR_RETURN(const auto table, in_memory_.Bytes(constant));
    std::ranges::copy(table.subspan(static_cast<size_t>(first), to.size()), to.begin());
    return OkStatus();
  }
  [[nodiscard]] bool IsReadByRow(const Value& constant) const override {
    return constant.source == "table";
  }

  bool fails = false;
  mutable int reads = 0;

 private:
  CountingWeights in_memory_;
};

class SessionTablesTest : public ::testing::Test {
 protected:
  std::unique_ptr<Session> Create(Graph graph, size_t lanes = 0) {
    SessionOptions options{.devices = {devices_.Open()}, .policy = {}, .limits = kTableSteps};
    options.lanes = lanes;
    auto session = Must(Session::Create(std::move(graph), table_, std::move(options)));
    const int32_t token = 0;
    const float bias = 0;
    EXPECT_TRUE(session->SetInput(kBiased, std::as_bytes(std::span(&token, 1))));
    EXPECT_TRUE(session->SetInput(kBias, std::as_bytes(std::span(&bias, 1))));
    return session;
  }
  static StepRows Rows(const std::vector<int32_t>& tokens, int32_t past = 0, int32_t slot = 0) {
    return StepRows::Consecutive(tokens, past, slot, DemandMode::kPerOutput);
  }
  static int32_t TokenOf(Session& session, StepLane lane = {}) {
    int32_t token = -1;
    EXPECT_TRUE(session.ReadOutput(output_names::kToken,
                                   std::as_writable_bytes(std::span(&token, 1)), lane));
    return token;
  }

  TableInFile table_;
  ReferenceDevices devices_;
};

TEST_F(SessionTablesTest, AStepReadsTheRowsOfItsTokens) {
  const auto session = Create(CountingGraph());
  ASSERT_TRUE(session->Run(Rows({1, 2, 4})));
  EXPECT_EQ(TokenOf(*session), 5);
  EXPECT_EQ(table_.reads, 3);
  ASSERT_TRUE(session->Run(Rows({6}, 3)));
  EXPECT_EQ(TokenOf(*session), 7);
  EXPECT_EQ(table_.reads, 4);
  // The logits of all rows of a step: each is 1 at the token that follows.
  ASSERT_TRUE(session->Run(Rows({7, 0}, 4)));
  std::vector<float> logits(2 * kVocabulary);
  ASSERT_TRUE(
      session->ReadOutput(output_names::kLogits, std::as_writable_bytes(std::span(logits))));
  EXPECT_THAT(logits, ElementsAre(1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0));
}

TEST_F(SessionTablesTest, LanesReadTheirOwnRows) {
  const auto session = Create(CountingGraph(), /*lanes=*/2);
  ASSERT_TRUE(session->Start(0, Rows({1, 2}, 0, 0)));
  ASSERT_TRUE(session->Start(1, Rows({5, 6}, 0, 1)));
  ASSERT_TRUE(session->Finish(0));
  ASSERT_TRUE(session->Finish(1));
  EXPECT_EQ(TokenOf(*session, 0), 3);
  EXPECT_EQ(TokenOf(*session, 1), 7);
}

TEST_F(SessionTablesTest, AReadThatFailsIsTheErrorOfItsStep) {
  const auto session = Create(CountingGraph());
  ASSERT_TRUE(session->Run(Rows({1})));
  table_.fails = true;
  const Status failed = session->Run(Rows({2}, 1));
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().id, "io.read");
  EXPECT_EQ(session->past(0), 1);
  table_.fails = false;
  ASSERT_TRUE(session->Run(Rows({2}, 1)));
  EXPECT_EQ(TokenOf(*session), 3);
}

TEST_F(SessionTablesTest, RefusesRowsThatTheTableLacks) {
  const auto session = Create(CountingGraph());
  for (const int32_t token : {-1, static_cast<int32_t>(kVocabulary)}) {
    const Status failed = session->Run(Rows({token}));
    ASSERT_FALSE(failed) << token;
    EXPECT_EQ(failed.error().id, "session.internal") << token;
  }
  EXPECT_EQ(table_.reads, 0);
}

TEST_F(SessionTablesTest, ATableThatIsMultipliedIsRead) {
  GraphBuilder b("tied");
  const ValueId tokens = AddStepInputs(b).tokens;
  const ValueId table = b.Constant("table", {DType::kF32, {kVocabulary, kVocabulary}});
  const ValueId rows = b.Add(ops::GatherRows{.table = table, .ids = tokens});
  b.Output("y", b.Add(ops::Linear(rows, table)), RowDemand::kAll);
  SessionOptions options{.devices = {devices_.Open()}, .policy = {}, .limits = kTableSteps};
  const auto session =
      Must(Session::Create(Must(std::move(b).Finish()), table_, std::move(options)));
  const Status failed = session->Run(Rows({1}));
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().id, "test.whole");
}

}  // namespace
}  // namespace rullama
