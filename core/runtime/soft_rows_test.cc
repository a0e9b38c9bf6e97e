#include "core/runtime/soft_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/must_test_util.h"
#include "core/ir/builder.h"
#include "core/ir/media_names.h"
#include "core/runtime/step_test_util.h"

namespace rullama {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kWidth = 2;

// A graph that gives back what it reads.
Graph EchoGraph() {
  GraphBuilder b("echo");
  b.Input(input_names::kTokens, {DType::kI32, {Dim::T()}});
  b.Input(input_names::kPast, {DType::kI32, {1}});
  const auto echo = [&b](std::string_view input, const TensorType& type, const char* output) {
    b.Output(output, b.Add(ops::Copy{.x = b.Input(input, type)}, output), RowDemand::kAll);
  };
  echo(media_names::kSoft, {DType::kF32, {Dim::T(), kWidth}}, "soft");
  echo(media_names::kKeep, {DType::kF32, {Dim::T(), 1}}, "keep");
  echo(media_names::kLastSeen, {DType::kI32, {Dim::T()}}, "seen");
  return Must(std::move(b).Finish());
}

class SoftRowsTest : public testing::Test {
 protected:
  void SetUp() override {
    SessionOptions options{.devices = {devices_.Open()}, .policy = {}, .limits = {.max_t = 8}};
    session_ = Must(Session::Create(EchoGraph(), weights_, std::move(options)));
  }
  void Run(int64_t rows) {
    const std::vector<int32_t> tokens(static_cast<size_t>(rows), 0);
    const Status run = session_->Run(
        StepRows::Consecutive(tokens, session_->past(0), /*slot=*/0, DemandMode::kAllRows));
    ASSERT_TRUE(run) << run.error().ToString();
  }
  template <typename T>
  std::vector<T> Read(std::string_view output, int64_t count) {
    std::vector<T> values(static_cast<size_t>(count));
    const Status read = session_->ReadOutput(output, std::as_writable_bytes(std::span(values)));
    EXPECT_TRUE(read) << read.error().ToString();
    return values;
  }

  CountingWeights weights_;
  ReferenceDevices devices_;
  std::unique_ptr<Session> session_;
  SoftRowInputs inputs_{kWidth, /*last_seen=*/true};
  const std::vector<float> picture_ = {1, 2, 3, 4};
  const std::vector<float> sound_ = {5, 6, 7, 8, 9, 10};
  const std::vector<SoftRows> media_ = {
      {.first = 1, .count = 2, .values = picture_, .see_each_other = true},
      {.first = 4, .count = 3, .values = sound_}};
};

TEST_F(SoftRowsTest, TakeTheirPlacesInAStep) {
  ASSERT_TRUE(inputs_.Set(*session_, media_, 0, 5));
  Run(5);
  EXPECT_THAT(Read<float>("soft", 10), ElementsAre(0, 0, 1, 2, 3, 4, 0, 0, 5, 6));
  EXPECT_THAT(Read<float>("keep", 5), ElementsAre(1, 0, 0, 1, 0));
  EXPECT_THAT(Read<int32_t>("seen", 5), ElementsAre(0, 2, 2, 3, 4));
  ASSERT_TRUE(inputs_.Set(*session_, media_, 5, 3));
  Run(3);
  EXPECT_THAT(Read<float>("soft", 6), ElementsAre(7, 8, 9, 10, 0, 0));
  EXPECT_THAT(Read<float>("keep", 3), ElementsAre(0, 0, 1));
  EXPECT_THAT(Read<int32_t>("seen", 3), ElementsAre(5, 6, 7));
}

TEST_F(SoftRowsTest, APictureThatAStepCutsIsRefused) {
  EXPECT_EQ(inputs_.Set(*session_, media_, 0, 2).error().id, "session.internal");
  EXPECT_EQ(inputs_.Set(*session_, media_, 2, 4).error().id, "session.internal");
}

TEST_F(SoftRowsTest, ValuesOfAnotherWidthAreRefused) {
  const std::vector<SoftRows> media = {{.first = 0, .count = 3, .values = picture_}};
  EXPECT_EQ(inputs_.Set(*session_, media, 0, 3).error().id, "session.internal");
}

}  // namespace
}  // namespace rullama
