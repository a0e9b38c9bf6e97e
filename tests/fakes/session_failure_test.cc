// A device that fails in the middle of a sequence.
#include "core/ir/builder.h"
#include "core/runtime/session.h"
#include "tests/fakes/fake_fixture.h"

namespace rullama::testing {
namespace {

class NoConstants final : public WeightSource {
 public:
  [[nodiscard]] Result<std::span<const std::byte>> Bytes(const Value& constant) const override {
    return MakeError(ErrorKind::kModelFile, "test.no_weights", "{} is wanted", constant.name);
  }
};

// The tokens of all rows, as they are.
Graph EchoGraph() {
  GraphBuilder b("echo");
  b.Input(input_names::kPast, TensorType(DType::kI32, {1}));
  const ValueId tokens = b.Input(input_names::kTokens, TensorType(DType::kI32, {Dim::T()}));
  b.Output("out", b.Add(ops::Copy{tokens}, "copy"), RowDemand::kAll);
  return *std::move(b).Finish();
}

TEST(SessionFailure, AFailedStepLeavesThePastAndTheSessionUsable) {
  const Scripted fake("fail_at=plan_execute:2");
  const NoConstants weights;
  const auto plugin = fake.Load();
  ASSERT_TRUE(plugin) << plugin.error().ToString();
  const auto device = (*plugin)->Open(0, {});
  ASSERT_TRUE(device) << device.error().ToString();
  SessionOptions options;
  options.devices = {device->get()};
  options.limits.max_t = 4;
  const auto session = Session::Create(EchoGraph(), weights, std::move(options));
  ASSERT_TRUE(session) << session.error().ToString();
  const auto step = [&](int32_t token, int32_t past) {
    return (*session)->Run(
        StepRows::Consecutive(std::vector{token}, past, 0, DemandMode::kAllRows));
  };
  ASSERT_TRUE(step(5, 0));
  const Status failed = step(6, 1);
  ASSERT_FALSE(failed);
  EXPECT_THAT(failed.error().message, ::testing::HasSubstr("plan_execute"));
  EXPECT_EQ((*session)->past(0), 1);
  ASSERT_TRUE(step(7, 1));
  EXPECT_EQ((*session)->past(0), 2);
  int32_t out = 0;
  ASSERT_TRUE((*session)->ReadOutput("out", std::as_writable_bytes(std::span(&out, 1))));
  EXPECT_EQ(out, 7);
}

}  // namespace
}  // namespace rullama::testing
