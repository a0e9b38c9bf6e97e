// The kernels of a session do not depend on its slots and its context, so that a server with other
// ones finds them in the caches, and a request that is alone takes those of a session of one slot.
// A driver without a device notes what is compiled.
#include <gmock/gmock.h>
#include <rullama/sdk/export.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backends/gpu/device.h"
#include "backends/gpu/fake_driver_test_util.h"
#include "backends/gpu/kernel_source.h"
#include "engine/model_program.h"
#include "models/gemma4/gemma4_model.h"
#include "tests/random/random_support.h"

namespace rullama::testing {
namespace {

using ::testing::Contains;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int64_t kChunk = 128;

// A GPU as Vulkan describes it.
gpu::Target TargetOfGpu(bool row_kernels) {
  gpu::Target target = gpu::TargetOfFakes();
  target.can.shared_bytes = 49152;
  target.can.multiprocessors = 132;
  target.can.subgroups = true;
  target.can.subgroup_size = 32;
  target.can.matrix_units = target.can.half_norms = true;
  target.can.integer_dot = true;
  target.prefers.wide = 1024;
  target.prefers.few_groups = 528;
  target.prefers.max_prologue = 8192;
  target.prefers.row_kernels = row_kernels;
  return target;
}

// Its device is a driver that keeps the kernels that it is asked for.
class NotingBackend final : public sdk::Backend {
 public:
  using Backend::Backend;
  [[nodiscard]] std::string_view name() const override { return "noting"; }
  [[nodiscard]] std::string_view version() const override { return "1"; }
  [[nodiscard]] std::string_view vendor() const override { return ""; }
  [[nodiscard]] const std::vector<sdk::DeviceInfo>& Devices() override { return devices_; }
  std::unique_ptr<sdk::Device> Open(uint32_t /*index*/,
                                    std::span<const sdk::Option> options) override {
    const bool row_kernels = !options.empty();
    auto made = std::make_unique<gpu::FakeDriver>(host_of_driver, TargetOfGpu(row_kernels));
    driver = made.get();
    return std::make_unique<gpu::GpuDevice>(std::move(made), gpu::CommonSettings{});
  }

  static inline gpu::FakeHost host_of_driver;
  static inline gpu::FakeDriver* driver = nullptr;  // of the device that was opened last

 private:
  std::vector<sdk::DeviceInfo> devices_ = {
      {.type = RL_DEVICE_GPU, .name = "none", .driver = "none"}};
};

struct Shape {
  int64_t slots;
  int64_t capacity;
  bool row_kernels = true;
};

// "matvec_dot 256 12 1 ..."
std::string TextOf(const gpu::PipelineKey& key) {
  std::string text(gpu::NameOf(key.shader));
  for (const uint32_t constant : key.constants) text += " " + std::to_string(constant);
  return text;
}

using Kernels = std::set<std::string>;

// A batch of a random model on that device.
class NotingSession {
 public:
  explicit NotingSession(const Shape& shape)
      : model_(MakeRandomModel(
            kSeed, {.per_layer_embeddings = true, .shared_kv = true, .quantised = true})) {
    host_ = std::make_shared<PluginHost>(HostOptions{});
    registry_ = std::make_unique<Registry>(RegistryOptions{}, host_);
    registry_->RegisterBuiltIn("noting", RULLAMA_BACKEND_QUERY(NotingBackend));
    std::vector<std::pair<std::string, std::string>> options;
    if (shape.row_kernels) options.emplace_back("row_kernels", "on");
    device_ = Must(Must(registry_->Find("noting"))->Open(0, options));
    const StepLimits limits = BatchLimits(shape.slots, kChunk);
    auto program = Must(BuildModelProgram(Gemma4Model(model_.config, model_.weights),
                                          {.outputs = GraphOutputs::kBatch,
                                           .slots = shape.slots,
                                           .capacity = shape.capacity,
                                           .kv_dtype = DType::kF16,
                                           .limits = limits}));
    graphs_ = program.handles;
    weights_ = std::make_unique<RandomWeights>(model_, std::move(program.constants));
    SessionOptions session;
    session.devices = {device_.get()};
    session.limits = limits;
    session_ = Must(Session::Create(std::move(program.graphs), *weights_, session));
  }

  // The kernels of steps that draw for each of these rows.
  Kernels OfDrawing(int64_t rows) {
    return Of(rows, DemandMode::kPerOutput, graphs_.Draw({.kind = RowChainKind::kPlain}), rows);
  }
  Kernels OfReading() { return Of(kChunk, DemandMode::kStateOnly, graphs_.read, 0); }

 private:
  static constexpr uint64_t kSeed = 5;

  Kernels Of(int64_t rows, DemandMode demand, GraphHandle graph, int64_t wanted) {
    const Status prepared = session_->Prepare(rows, demand, graph, wanted);
    EXPECT_TRUE(prepared) << prepared.error().ToString();
    Kernels kernels;
    for (const gpu::PipelineKey& key : NotingBackend::driver->compiled) {
      kernels.insert(TextOf(key));
    }
    return kernels;
  }

  RandomModel model_;
  std::shared_ptr<PluginHost> host_;
  std::unique_ptr<Registry> registry_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<RandomWeights> weights_;
  std::unique_ptr<Session> session_;
  ProgramGraphs graphs_;
};

// Kernels of attention have the numbers of slots and of cached rows as constants.
Kernels WithoutAttention(Kernels kernels) {
  std::erase_if(kernels, [](const std::string& kernel) { return kernel.starts_with("attention"); });
  return kernels;
}

TEST(SlotKernels, DrawingTakesTheSameWhateverTheSlotsAndTheContextAre) {
  for (const int64_t rows : {1, 2, 4}) {
    const Kernels four = NotingSession({.slots = 4, .capacity = 256}).OfDrawing(rows);
    const Kernels eight = NotingSession({.slots = 8, .capacity = 512}).OfDrawing(rows);
    EXPECT_THAT(four, Contains(::testing::StartsWith("attention")));
    EXPECT_THAT(WithoutAttention(four), Not(IsEmpty()));
    EXPECT_EQ(WithoutAttention(four), WithoutAttention(eight)) << rows << " rows";
  }
}

TEST(SlotKernels, ReadingTakesTheSameWhateverTheSlotsAndTheContextAre) {
  for (const bool row_kernels : {false, true}) {
    const Kernels four = NotingSession({4, 256, row_kernels}).OfReading();
    const Kernels more = NotingSession({64, 512, row_kernels}).OfReading();
    EXPECT_THAT(WithoutAttention(four), Not(IsEmpty()));
    EXPECT_EQ(WithoutAttention(four), WithoutAttention(more));
  }
}

TEST(SlotKernels, ARequestAloneInSixteenSlotsTakesThoseOfOneSlot) {
  const Kernels one = NotingSession({.slots = 1, .capacity = 256}).OfDrawing(1);
  const Kernels sixteen = NotingSession({.slots = 16, .capacity = 256}).OfDrawing(1);
  EXPECT_EQ(WithoutAttention(one), WithoutAttention(sixteen));
}

}  // namespace
}  // namespace rullama::testing
