// The reference backend through the plugin ABI: handshake, buffers, weights and plans.
#include "core/reference/reference_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rullama/sdk/half.h>

#include <atomic>
#include <cstring>

#include "core/ir/builder.h"
#include "core/plugin/device.h"
#include "core/plugin/host_table.h"

namespace rullama {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Dim kT = Dim::T();

// Loads the reference with a separate host; a process can have one at a time.
class ReferenceBackendTest : public ::testing::Test {
 protected:
  ReferenceBackendTest() {
    HostOptions options;
    options.cancelled = cancelled_;
    auto plugin = Plugin::FromQuery(ReferencePluginQuery, "built in",
                                    std::make_shared<PluginHost>(std::move(options)));
    EXPECT_TRUE(plugin) << plugin.error().ToString();
    plugin_ = *std::move(plugin);
  }
  ~ReferenceBackendTest() override { plugin_->Shutdown(); }

  std::shared_ptr<std::atomic<bool>> cancelled_ = std::make_shared<std::atomic<bool>>(false);
  std::shared_ptr<Plugin> plugin_;
};

// y = x weight^T on all rows; x is kept in an f16 state.
Graph LinearGraph() {
  GraphBuilder b("linear");
  const ValueId x = b.Input("x", {DType::kF32, {kT, 32}});
  const ValueId pos = b.Input("pos", {DType::kI32, {kT}});
  const ValueId slot = b.Input("slot", {DType::kI32, {kT}});
  const ValueId weight = b.Constant("w", {DType::kQ8_0, {1, 32}});
  const ValueId state = b.State("s", {DType::kF16, {1, 2, 32}});
  const ValueId twice = b.Add(ops::Affine{.x = x, .scale = 2, .bias = 0}, "twice");
  b.Output("y", b.Add(ops::Linear(twice, weight), "y"), RowDemand::kAll);
  b.Add(ops::StateAppend{.state = state,
                         .rows = b.Add(ops::Cast{.x = x, .dtype = DType::kF16}, "half"),
                         .pos = pos,
                         .slot = slot},
        "s.next");
  Graph graph = *std::move(b).Finish();
  graph.max_t = 4;
  return graph;
}

// A graph with storage: every value has a separate offset in one buffer.
class Compiled {
 public:
  Compiled(const Plugin& plugin, Graph graph) : graph_(std::move(graph)) {
    device_ = *plugin.Open(0, {});
    const uint16_t scale = FloatToHalf(0.5F);
    std::memcpy(block_.data(), &scale, sizeof(scale));
    for (size_t j = 0; j < 32; ++j) block_[2 + j] = std::byte{2};
    weight_ = *device_->CreateWeight({"w", {DType::kQ8_0, {1, 32}}, block_});
    uint64_t at = 0;
    storage_.resize(graph_.values.size());
    for (ValueId id = 0; id < graph_.values.size(); ++id) {
      const Value& value = graph_.value(id);
      if (value.lifetime == Lifetime::kConstant) {
        storage_[id] = {.lifetime = RL_LIFETIME_CONSTANT, .weight = weight_.get()};
        continue;
      }
      storage_[id].lifetime = LifetimeOf(id);
      storage_[id].bytes = value.type.BytesAt(graph_.MaxExtents());
      storage_[id].offset = value.producer != kNoOp && value.lifetime == Lifetime::kState
                                ? storage_[value.state].offset
                                : at;
      at += (storage_[id].bytes + 7) / 8 * 8;
    }
    buffer_ = *device_->CreateBuffer(at, RL_BUFFER_IO);
    for (Storage& storage : storage_) {
      if (storage.lifetime != RL_LIFETIME_CONSTANT) storage.buffer = buffer_.get();
    }
  }

  Result<DevicePlan> Compile() { return device_->Compile(graph_, storage_); }
  Device& device() { return *device_; }
  Storage& storage(std::string_view name) { return storage_[graph_.Find(name)]; }
  Graph& graph() { return graph_; }

  template <typename T>
  void Write(std::string_view name, const std::vector<T>& values) {
    EXPECT_TRUE(device_->Write(buffer_, storage(name).offset, std::as_bytes(std::span(values))));
  }
  template <typename T>
  std::vector<T> Read(std::string_view name, size_t count) {
    std::vector<T> values(count);
    EXPECT_TRUE(
        device_->Read(buffer_, storage(name).offset, std::as_writable_bytes(std::span(values))));
    return values;
  }
  const DeviceBuffer& buffer() { return buffer_; }

 private:
  rl_lifetime LifetimeOf(ValueId id) const {
    switch (graph_.value(id).lifetime) {
      case Lifetime::kInput:
        return RL_LIFETIME_INPUT;
      case Lifetime::kState:
        return RL_LIFETIME_STATE;
      default:
        return graph_.outputs[0].value == id ? RL_LIFETIME_OUTPUT : RL_LIFETIME_TRANSIENT;
    }
  }

  Graph graph_;
  std::array<std::byte, 34> block_{};
  std::unique_ptr<Device> device_;
  DeviceWeight weight_;
  DeviceBuffer buffer_;
  std::vector<Storage> storage_;
};

void FillStep(Compiled& compiled, int32_t first_pos, int32_t rows) {
  std::vector<float> x;
  std::vector<int32_t> pos;
  for (int32_t row = 0; row < rows; ++row) {
    x.insert(x.end(), 32, static_cast<float>(first_pos + row + 1));
    pos.push_back(first_pos + row);
  }
  compiled.Write("x", x);
  compiled.Write("pos", pos);
  compiled.Write("slot", std::vector<int32_t>(static_cast<size_t>(rows), 0));
}

TEST_F(ReferenceBackendTest, HasOneDeviceThatTakesEveryOp) {
  EXPECT_EQ(plugin_->name(), "reference");
  const auto list = plugin_->ListDevices();
  ASSERT_TRUE(list) << list.error().ToString();
  ASSERT_EQ(list->devices.size(), 1u);
  EXPECT_TRUE(list->devices[0].deterministic);
  Compiled compiled(*plugin_, LinearGraph());
  const auto support = compiled.device().QueryOps(compiled.graph());
  ASSERT_TRUE(support) << support.error().ToString();
  for (const OpSupport& op : *support) EXPECT_TRUE(op.supported) << op.reason;
}

TEST_F(ReferenceBackendTest, ReplaysAPlanWithOtherRows) {
  Compiled compiled(*plugin_, LinearGraph());
  compiled.storage("twice").observed = true;
  const auto plan = compiled.Compile();
  ASSERT_TRUE(plan) << plan.error().ToString();
  FillStep(compiled, 0, 3);
  ASSERT_TRUE(compiled.device().Execute(*plan, {.t = 3, .r = 0}));
  EXPECT_THAT(compiled.Read<float>("y", 3), ElementsAre(64, 128, 192));
  EXPECT_EQ(compiled.Read<float>("twice", 33)[32], 4);
  const auto state = compiled.Read<uint16_t>("s", 64);
  EXPECT_EQ(state[0], FloatToHalf(3));  // position 2 overwrote position 0
  EXPECT_EQ(state[32], FloatToHalf(2));
  FillStep(compiled, 3, 1);
  ASSERT_TRUE(compiled.device().Execute(*plan, {.t = 1, .r = 0}));
  EXPECT_EQ(compiled.Read<float>("y", 1)[0], 256);
  EXPECT_EQ(compiled.Read<uint16_t>("s", 64)[63], FloatToHalf(4));
  const auto stats = compiled.device().Stats(*plan);
  ASSERT_TRUE(stats);
  EXPECT_EQ(stats->executions, 2u);
  EXPECT_EQ(stats->compilations, 1u);
  EXPECT_EQ(stats->dispatches, 8u);
  EXPECT_GT(stats->allocations, 0u);
}

TEST_F(ReferenceBackendTest, RefusesWhatItCannotDecode) {
  GraphBuilder b("g");
  const ValueId x = b.Input("x", {DType::kF32, {kT, 256}});
  b.Add(ops::Linear(x, b.Constant("w", {DType::kQ1_0, {1, 256}})), "y");
  b.Add(ops::Affine{.x = x, .scale = 1, .bias = 0}, "z");
  const Graph graph = *std::move(b).Finish();
  const auto device = *plugin_->Open(0, {});
  const auto support = device->QueryOps(graph);
  ASSERT_TRUE(support) << support.error().ToString();
  EXPECT_FALSE((*support)[0].supported);
  EXPECT_THAT((*support)[0].reason, HasSubstr("cannot decode 'w' of type q1_0"));
  EXPECT_TRUE((*support)[1].supported);
  const std::vector<std::byte> bytes(36);
  const auto weight = device->CreateWeight({"w", {DType::kQ1_0, {1, 256}}, bytes});
  ASSERT_FALSE(weight);
  EXPECT_THAT(weight.error().message, HasSubstr("known are"));
  const auto layout = device->LayoutWeight({"w", {DType::kQ8_0, {1, 32}}, {}});
  ASSERT_TRUE(layout);
  EXPECT_TRUE(layout->in_place);
}

TEST_F(ReferenceBackendTest, ErrorsNameTheOp) {
  Compiled compiled(*plugin_, LinearGraph());
  const auto plan = compiled.Compile();
  ASSERT_TRUE(plan);
  FillStep(compiled, 0, 1);
  compiled.Write("slot", std::vector<int32_t>{5});
  const Status status = compiled.device().Execute(*plan, {.t = 1, .r = 0});
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("at op 3: Execute: op 3 -> 's.next'"));
  EXPECT_THAT(status.error().message, HasSubstr("slot 5"));
}

TEST_F(ReferenceBackendTest, CancelsBetweenOps) {
  Compiled compiled(*plugin_, LinearGraph());
  const auto plan = compiled.Compile();
  ASSERT_TRUE(plan);
  FillStep(compiled, 0, 1);
  *cancelled_ = true;
  const Status status = compiled.device().Execute(*plan, {.t = 1, .r = 0});
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().id, "run.cancelled");
}

TEST_F(ReferenceBackendTest, StorageIsChecked) {
  const auto compile_error = [&](const std::function<void(Compiled&)>& change) {
    Compiled compiled(*plugin_, LinearGraph());
    change(compiled);
    const auto plan = compiled.Compile();
    return plan ? std::string("no error") : plan.error().message;
  };
  EXPECT_EQ(compile_error([](Compiled&) {}), "no error");
  EXPECT_THAT(compile_error([](Compiled& c) { c.storage("x").buffer = nullptr; }),
              HasSubstr("value 'x' has no storage"));
  EXPECT_THAT(compile_error([](Compiled& c) { c.storage("s").bytes = 4; }),
              HasSubstr("value 's' has no storage of 128 bytes"));
  EXPECT_THAT(compile_error([](Compiled& c) { c.storage("y").offset = UINT64_MAX - 8; }),
              HasSubstr("are outside a buffer of"));
  EXPECT_THAT(compile_error([](Compiled& c) { c.storage("w").weight = nullptr; }),
              HasSubstr("constant 'w' has no weight"));
}

TEST_F(ReferenceBackendTest, BuffersAreZeroAndBounded) {
  const auto device = *plugin_->Open(0, {});
  const auto buffer = *device->CreateBuffer(4, RL_BUFFER_STATE);
  std::array<std::byte, 4> data{std::byte{1}, std::byte{1}, std::byte{1}, std::byte{1}};
  ASSERT_TRUE(device->Read(buffer, 0, data));
  EXPECT_THAT(data, ElementsAre(std::byte{}, std::byte{}, std::byte{}, std::byte{}));
  EXPECT_FALSE(device->Write(buffer, 1, data));
  const std::pair<std::string, std::string> option{"threads", "3"};
  const auto opened = plugin_->Open(0, std::span(&option, 1));
  ASSERT_FALSE(opened);
  EXPECT_THAT(opened.error().message, HasSubstr("unknown option 'threads'"));
}

}  // namespace
}  // namespace rullama
