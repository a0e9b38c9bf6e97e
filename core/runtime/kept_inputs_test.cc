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

TEST(KeptInputsTest, EveryTargetGetsTheValueAtOnceAndWheneverItIsSet) {
  ReferenceDevices devices;
  Device* const first = devices.Open();
  Device* const second = devices.Open();
  const auto near = first->CreateBuffer(8, RL_BUFFER_IO);
  const auto far = second->CreateBuffer(8, RL_BUFFER_IO);
  ASSERT_TRUE(near && far);
  const auto read = [](Device* device, const DeviceBuffer& buffer) {
    std::vector<int32_t> values(2);
    EXPECT_TRUE(device->Read(buffer, 0, std::as_writable_bytes(std::span(values))));
    return values;
  };

  KeptInputs kept({.t = 2, .r = 1});
  kept.Declare(ExtraGraph());
  const KeptInput* const extra = kept.Find(kExtra);
  ASSERT_NE(extra, nullptr);
  ASSERT_TRUE(kept.AddTarget(*extra, *first, *near));
  ASSERT_TRUE(kept.Set(kExtra, BytesOf({3, 4})));
  EXPECT_THAT(read(first, *near), ElementsAre(3, 4));
  ASSERT_TRUE(kept.AddTarget(*extra, *second, *far));
  EXPECT_THAT(read(second, *far), ElementsAre(3, 4));
  ASSERT_TRUE(kept.Set(kExtra, BytesOf({5, 6})));
  EXPECT_THAT(read(first, *near), ElementsAre(5, 6));
  EXPECT_THAT(read(second, *far), ElementsAre(5, 6));
}

// Inputs that a batch sets before each step are mostly what they were.
TEST(KeptInputsTest, AValueThatIsKeptIsNotWrittenAgain) {
  ReferenceDevices devices;
  Device* const device = devices.Open();
  const auto buffer = device->CreateBuffer(8, RL_BUFFER_IO);
  ASSERT_TRUE(buffer);
  KeptInputs kept({.t = 2, .r = 1});
  kept.Declare(ExtraGraph());
  ASSERT_TRUE(kept.AddTarget(*kept.Find(kExtra), *device, *buffer));
  ASSERT_TRUE(kept.Set(kExtra, BytesOf({3, 4})));
  // A trace of writes: the target is changed behind the back of the inputs.
  ASSERT_TRUE(device->Write(*buffer, 0, BytesOf({7, 7})));
  const auto read = [&] {
    std::vector<int32_t> values(2);
    EXPECT_TRUE(device->Read(*buffer, 0, std::as_writable_bytes(std::span(values))));
    return values;
  };
  ASSERT_TRUE(kept.Set(kExtra, BytesOf({3, 4})));
  EXPECT_THAT(read(), ElementsAre(7, 7));
  ASSERT_TRUE(kept.Set(kExtra, BytesOf({3})));
  EXPECT_THAT(read(), ElementsAre(3, 7));
  ASSERT_TRUE(kept.Set(kExtra, BytesOf({3, 4})));
  EXPECT_THAT(read(), ElementsAre(3, 4));
}

TEST(KeptInputsTest, AFailedWriteLeavesTheInputUnset) {
  ReferenceDevices devices;
  Device* const device = devices.Open();
  const auto small = device->CreateBuffer(4, RL_BUFFER_IO);
  ASSERT_TRUE(small);
  KeptInputs kept({.t = 2, .r = 1});
  kept.Declare(ExtraGraph());
  const KeptInput* const extra = kept.Find(kExtra);
  ASSERT_TRUE(kept.AddTarget(*extra, *device, *small));
  ASSERT_FALSE(kept.Set(kExtra, BytesOf({3, 4})));
  EXPECT_TRUE(extra->bytes.empty());
  EXPECT_FALSE(kept.Set(kExtra, BytesOf({3, 4}))) << "the same value is tried again";
}

TEST(KeptInputsTest, AStepOfOtherRowsThanTheInputIsRefused) {
  const CountingWeights weights;
  ReferenceDevices devices;
  const auto created =
      Session::Create(ExtraGraph(), weights,
                      {.devices = {devices.Open()}, .policy = {}, .limits = {.max_rows = 4}});
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
