// Tests where the value of an input goes and which sizes are refused.
#include "core/runtime/kept_inputs.h"

#include <gmock/gmock.h>

#include "core/runtime/step_test_util.h"

namespace rullama {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kExtra = "extra";  // i32 [T]

// The values of the input "extra", as they are.
Graph ExtraGraph() {
  GraphBuilder b("extra");
  b.Input(input_names::kPast, TensorType(DType::kI32, {1}));
  const TensorType rows(DType::kI32, {Dim::T()});
  b.Input(input_names::kTokens, rows);
  const ValueId extra = b.Input(kExtra, rows);
  b.Output("out", b.Add(ops::Copy{.x = extra}, "copy"), RowDemand::kAll);
  return *std::move(b).Finish();
}

std::span<const std::byte> BytesOf(const std::vector<int32_t>& values) {
  return std::as_bytes(std::span(values));
}

// Inputs of lanes and a buffer of two values that plans would read "extra" from.
class KeptInputsTest : public ::testing::Test {
 protected:
  KeptInputsTest() {
    kept_.Declare(ExtraGraph());
    extra_ = kept_.Find(kExtra);
  }
  // Writes the value of a lane as a step does before it runs.
  Status Write(StepLane lane = {}) {
    return KeptInputs::WriteTo(kept_.TargetOf(buffer_), *device_, extra_->For(lane));
  }
  [[nodiscard]] std::vector<int32_t> Read() const {
    std::vector<int32_t> values(2);
    EXPECT_TRUE(device_->Read(buffer_, 0, std::as_writable_bytes(std::span(values))));
    return values;
  }

  ReferenceDevices devices_;
  Device* device_ = devices_.Open();
  DeviceBuffer buffer_ = *device_->CreateBuffer(8, RL_BUFFER_IO);
  KeptInputs kept_{{.t = 2, .r = 1}, /*lanes=*/2};
  const KeptInput* extra_ = nullptr;
};

// Inputs that a batch sets before each step are mostly what they were.
TEST_F(KeptInputsTest, AValueIsWrittenOnceUntilAnotherIsSet) {
  ASSERT_TRUE(Write()) << "no value is set";
  EXPECT_THAT(Read(), ElementsAre(0, 0));
  ASSERT_TRUE(kept_.Set(kExtra, BytesOf({3, 4})));
  ASSERT_TRUE(Write());
  EXPECT_THAT(Read(), ElementsAre(3, 4));
  // A trace of writes: the target is changed without the knowledge of the inputs.
  ASSERT_TRUE(device_->Write(buffer_, 0, BytesOf({7, 7})));
  ASSERT_TRUE(kept_.Set(kExtra, BytesOf({3, 4})));
  ASSERT_TRUE(Write());
  EXPECT_THAT(Read(), ElementsAre(7, 7));
  ASSERT_TRUE(kept_.Set(kExtra, BytesOf({3})));
  ASSERT_TRUE(Write());
  EXPECT_THAT(Read(), ElementsAre(3, 7));
  ASSERT_TRUE(kept_.Set(kExtra, BytesOf({3, 4})));
  ASSERT_TRUE(Write());
  EXPECT_THAT(Read(), ElementsAre(3, 4));
}

TEST_F(KeptInputsTest, LanesShareATargetAndHaveValuesOfTheirOwn) {
  ASSERT_TRUE(kept_.Set(kExtra, BytesOf({1, 1})));
  ASSERT_TRUE(kept_.Set(kExtra, BytesOf({5, 6}), 1));
  ASSERT_TRUE(Write(1));
  EXPECT_THAT(Read(), ElementsAre(5, 6));
  ASSERT_TRUE(Write(0));
  EXPECT_THAT(Read(), ElementsAre(1, 1)) << "a lane without an own value has the common one";
  ASSERT_TRUE(kept_.Set(kExtra, BytesOf({3, 4}), 0));
  ASSERT_TRUE(Write(0));
  EXPECT_THAT(Read(), ElementsAre(3, 4));
  ASSERT_TRUE(Write(1));
  EXPECT_THAT(Read(), ElementsAre(5, 6));
  ASSERT_TRUE(Write());
  EXPECT_THAT(Read(), ElementsAre(1, 1));
}

TEST_F(KeptInputsTest, AFailedWriteIsTriedAgain) {
  const auto small = device_->CreateBuffer(4, RL_BUFFER_IO);
  ASSERT_TRUE(small);
  ASSERT_TRUE(kept_.Set(kExtra, BytesOf({3, 4})));
  for (int i = 0; i < 2; ++i) {
    EXPECT_FALSE(KeptInputs::WriteTo(kept_.TargetOf(*small), *device_, extra_->For({})));
  }
}

TEST(KeptInputsSession, AStepOfOtherRowsThanTheInputIsRefused) {
  const CountingWeights weights;
  ReferenceDevices devices;
  const auto created = Session::Create(
      ExtraGraph(), weights, {.devices = {devices.Open()}, .policy = {}, .limits = {.max_t = 4}});
  ASSERT_TRUE(created) << created.error().ToString();
  Session& session = **created;
  ASSERT_TRUE(session.SetInput(kExtra, BytesOf({7, 8})));
  const auto run = [&session](std::vector<int32_t> tokens) {
    return session.Run(StepRows::Consecutive(tokens, session.past(0), 0, DemandMode::kAllRows));
  };
  const Status refused = run({1, 2, 3});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().id, "session.internal");
  EXPECT_THAT(refused.error().message, HasSubstr("'extra' was set to 8 bytes"));
  EXPECT_EQ(session.past(0), 0);
  ASSERT_TRUE(run({1, 2}));
  std::vector<int32_t> out(2);
  ASSERT_TRUE(session.ReadOutput("out", std::as_writable_bytes(std::span(out))));
  EXPECT_THAT(out, ElementsAre(7, 8));
  const Status too_large = session.SetInput(kExtra, BytesOf({1, 2, 3, 4, 5}));
  ASSERT_FALSE(too_large);
  EXPECT_THAT(too_large.error().message, HasSubstr("found 20 bytes"));
}

}  // namespace
}  // namespace rullama
