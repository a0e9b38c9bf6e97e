// A session on a device that has half a GiB free.
#include "core/base/must_test_util.h"
#include "core/ir/builder.h"
#include "core/runtime/session.h"
#include "tests/fakes/fake_fixture.h"

namespace rullama::testing {
namespace {

class NoWeights final : public WeightSource {
 public:
  [[nodiscard]] Result<std::span<const std::byte>> Bytes(const Value& constant) const override {
    return MakeError(ErrorKind::kModelFile, "test.no_weights", "{} is wanted", constant.name);
  }
};

// Appends a row of 256 halves to a cache of `bytes`.
Graph CacheGraph(int64_t bytes) {
  constexpr int64_t kWidth = 256;
  GraphBuilder b("cache");
  const auto rows = TensorType(DType::kI32, {Dim::T()});
  b.Input(input_names::kPast, TensorType(DType::kI32, {1}));
  const ValueId pos = b.Input(input_names::kPos, rows);
  const ValueId slot = b.Input(input_names::kSlot, rows);
  const ValueId k = b.Input("k", TensorType(DType::kF16, {Dim::T(), 1, kWidth}));
  const ValueId cache =
      b.State("k_state", TensorType(DType::kF16, {1, bytes / (2 * kWidth), 1, kWidth}));
  b.Add(ops::StateAppend{.state = cache, .rows = k, .pos = pos, .slot = slot}, "k.next");
  b.Output("out", b.Add(ops::Copy{k}, "copy"), RowDemand::kAll);
  auto graph = std::move(b).Finish();
  EXPECT_TRUE(graph) << graph.error().ToString();
  return *std::move(graph);
}

Status Prepare(int64_t cache_bytes) {
  const Scripted fake("support=1");  // says yes to every op
  const NoWeights weights;
  RL_ASSIGN_OR_RETURN(const auto plugin, fake.Load());
  RL_ASSIGN_OR_RETURN(const auto device, plugin->Open(0, {}));
  SessionOptions options;
  options.devices = {device.get()};
  RL_ASSIGN_OR_RETURN(const auto session,
                      Session::Create(CacheGraph(cache_bytes), weights, std::move(options)));
  return session->Prepare(1, DemandMode::kAllRows);
}

TEST(SessionMemory, CacheThatFitsIsMade) {
  const Status status = Prepare(int64_t{1} << 20);
  EXPECT_TRUE(status) << status.error().ToString();
}

TEST(SessionMemory, CacheThatDoesNotFitIsRefusedBeforeItIsAskedFor) {
  const Status status = Prepare(int64_t{1} << 30);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().id, "device.memory");
  EXPECT_THAT(status.error().message, ::testing::HasSubstr("1.00 GiB of caches"));
  EXPECT_THAT(status.error().message, ::testing::HasSubstr("512.0 MiB free of 1.00 GiB"));
}

TEST(SessionMemory, SessionsOnADeviceKnowOfEachOther) {
  // Room for one cache and a half.
  constexpr int64_t kCache = int64_t{1} << 20;
  constexpr uint64_t kHeldByOthers = (uint64_t{1} << 29) - kCache - kCache / 2;
  const Scripted fake("support=1");
  const NoWeights weights;
  const auto plugin = Must(fake.Load());
  const auto device = Must(plugin->Open(0, {}));
  const auto allocated = std::make_shared<AllocatedBytes>(1, kHeldByOthers);
  const auto prepare = [&] {
    SessionOptions options;
    options.devices = {device.get()};
    options.allocated = allocated;
    auto session = Must(Session::Create(CacheGraph(kCache), weights, std::move(options)));
    const Status status = session->Prepare(1, DemandMode::kAllRows);
    return std::pair(std::move(session), status);
  };
  auto [first, fits] = prepare();
  EXPECT_TRUE(fits) << fits.error().ToString();
  const Status second = prepare().second;
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().id, "device.memory");
  first.reset();
  const Status alone = prepare().second;
  EXPECT_TRUE(alone) << alone.error().ToString();
}

}  // namespace
}  // namespace rullama::testing
