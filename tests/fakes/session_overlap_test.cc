// Two devices that run steps of two lanes at the same time.
#include "core/ir/builder.h"
#include "core/runtime/session.h"
#include "tests/fakes/fake_fixture.h"

namespace rullama::testing {
namespace {

class WithoutWeights final : public WeightSource {
 public:
  [[nodiscard]] Result<std::span<const std::byte>> Bytes(const Value& constant) const override {
    return MakeError(ErrorKind::kModelFile, "test.no_weights", "{} is wanted", constant.name);
  }
};

// Two copies of the tokens, both of them outputs.
Graph TwoCopies() {
  GraphBuilder b("copies");
  b.Input(input_names::kPast, TensorType(DType::kI32, {2}));
  const ValueId tokens = b.Input(input_names::kTokens, TensorType(DType::kI32, {Dim::T()}));
  b.Output("first", b.Add(ops::Copy{tokens}, "near"), RowDemand::kAll);
  b.Output("out", b.Add(ops::Copy{tokens}, "far"), RowDemand::kAll);
  return *std::move(b).Finish();
}

// Two steps have four segments; the second of one and the first of the other meet.
TEST(SessionOverlap, DevicesRunStepsOfTwoLanesAtTheSameTime) {
  const Scripted fake("meet=plan_execute:2");
  const WithoutWeights weights;
  const auto plugin = fake.Load();
  ASSERT_TRUE(plugin) << plugin.error().ToString();
  const auto near = (*plugin)->Open(0, {});
  const auto far = (*plugin)->Open(0, {});
  ASSERT_TRUE(near && far);
  SessionOptions options;
  options.devices = {near->get(), far->get()};
  options.policy.host_device = 1;
  options.policy.on_host = {"far"};
  options.lanes = 2;
  const auto session = Session::Create(TwoCopies(), weights, std::move(options));
  ASSERT_TRUE(session) << session.error().ToString();
  const auto rows = [](int32_t slot) {
    return StepRows::Consecutive(std::vector{5 + slot}, 0, slot, DemandMode::kAllRows);
  };
  ASSERT_TRUE((*session)->Prepare(1, DemandMode::kAllRows));
  for (const int32_t slot : {0, 1}) {
    ASSERT_TRUE((*session)->Start(static_cast<size_t>(slot), rows(slot)));
  }
  for (const int32_t slot : {0, 1}) {
    const auto lane = static_cast<size_t>(slot);
    const Status finished = (*session)->Finish(lane);
    ASSERT_TRUE(finished) << finished.error().ToString();
    int32_t out = 0;
    ASSERT_TRUE((*session)->ReadOutput("out", std::as_writable_bytes(std::span(&out, 1)), lane));
    EXPECT_EQ(out, 5 + slot);
  }
}

}  // namespace
}  // namespace rullama::testing
