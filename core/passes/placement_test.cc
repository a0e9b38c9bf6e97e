#include "core/passes/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "core/passes/mini_model_for_test.h"
#include "core/passes/row_demand.h"

namespace rullama {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Devices that refuse some kinds of ops, with a count of queries per device.
class FakeDevices {
 public:
  explicit FakeDevices(std::map<int, std::set<OpKind>> refused) : refused_(std::move(refused)) {}

  SupportQuery Query() {
    return [this](int device, const Graph& graph) -> Result<std::vector<std::string>> {
      ++asked[device];
      std::vector<std::string> reasons;
      for (const Op& op : graph.ops) {
        reasons.emplace_back(refused_[device].contains(op.kind) ? "no kernel" : "");
      }
      return reasons;
    };
  }

  std::map<int, int> asked;

 private:
  std::map<int, std::set<OpKind>> refused_;
};

PlacementPolicy PolicyWithHost(FallbackPolicy fallback) {
  PlacementPolicy policy;
  policy.fallback = fallback;
  policy.host_device = 1;
  policy.host_ops = {"gather_rows"};
  policy.device_names = {"gpu", "cpu"};
  return policy;
}

int DeviceOf(const Graph& graph, std::string_view name) {
  return graph.ops[OpOf(graph, name)].device;
}

TEST(Placement, TheMainDeviceTakesWhatItSupports) {
  FakeDevices devices({});
  auto placed = PlaceOps(MiniModel::Build(), devices.Query(), PlacementPolicy{});
  ASSERT_TRUE(placed.has_value()) << placed.error().ToString();
  EXPECT_EQ(placed->report.ops_per_device, std::vector<size_t>{placed->graph.ops.size()});
  EXPECT_TRUE(placed->report.moved_to_host.empty());
  EXPECT_TRUE(placed->report.decomposed.empty());
  EXPECT_EQ(devices.asked[0], 1);
}

TEST(Placement, RefusedCompositesAreDecomposedUntilSupported) {
  FakeDevices devices({{0, {OpKind::kPleInject, OpKind::kResidualNorm, OpKind::kAttention}}});
  auto placed = PlaceOps(MiniModel::Build(), devices.Query(), PlacementPolicy{});
  ASSERT_TRUE(placed.has_value()) << placed.error().ToString();
  const Graph& graph = placed->graph;
  EXPECT_EQ(CountOps(graph, OpKind::kPleInject), 0U);
  EXPECT_EQ(CountOps(graph, OpKind::kResidualNorm), 0U);
  EXPECT_EQ(CountOps(graph, OpKind::kAttentionScores), 3U);
  EXPECT_GT(CountOps(graph, OpKind::kRmsNorm), 0U) << "supported ops stay composite";
  // 3 attentions, 6 residual norms, 3 injections and the residual norms inside them.
  EXPECT_EQ(placed->report.decomposed.size(), 15U);
  EXPECT_EQ(placed->report.decomposed[0].reason, "no kernel");
  EXPECT_EQ(devices.asked[0], 3);
}

TEST(Placement, ARefusedPrimitiveIsAnErrorThatSaysWhatToSet) {
  FakeDevices devices({{0, {OpKind::kRope}}});
  auto alone = PlaceOps(MiniModel::Build(), devices.Query(), PlacementPolicy{});
  ASSERT_FALSE(alone.has_value());
  EXPECT_EQ(alone.error().id, "placement.refused");
  EXPECT_EQ(alone.error().kind, ErrorKind::kBackend);
  EXPECT_THAT(alone.error().message, AllOf(HasSubstr("'blk.0.k' (rope)"), HasSubstr("device 0"),
                                           HasSubstr("no kernel"), HasSubstr("another backend")));

  auto denied =
      PlaceOps(MiniModel::Build(), devices.Query(), PolicyWithHost(FallbackPolicy::kDeny));
  ASSERT_FALSE(denied.has_value());
  EXPECT_THAT(denied.error().message,
              AllOf(HasSubstr("gpu"), HasSubstr("placement.fallback to 'list'")));
  // The program opens no host that may not be used.
  PlacementPolicy strict;
  strict.fallback = FallbackPolicy::kDeny;
  denied = PlaceOps(MiniModel::Build(), devices.Query(), strict);
  ASSERT_FALSE(denied.has_value());
  EXPECT_THAT(denied.error().message, HasSubstr("or to 'allow' to let the host run"));

  auto unlisted =
      PlaceOps(MiniModel::Build(), devices.Query(), PolicyWithHost(FallbackPolicy::kList));
  ASSERT_FALSE(unlisted.has_value());
  EXPECT_THAT(unlisted.error().message, HasSubstr("add 'rope' to placement.host_ops"));

  FakeDevices both({{0, {OpKind::kRope}}, {1, {OpKind::kRope}}});
  auto nowhere = PlaceOps(MiniModel::Build(), both.Query(), PolicyWithHost(FallbackPolicy::kAllow));
  ASSERT_FALSE(nowhere.has_value());
  EXPECT_THAT(nowhere.error().message, HasSubstr("the host (cpu) refuses it too: no kernel"));
}

// The advice to take another backend is left out where none reads the type.
TEST(Placement, ATypeThatNothingDecodesIsNamed) {
  FakeDevices devices({{0, {OpKind::kMatMul}}, {1, {OpKind::kMatMul}}});
  for (const DType dtype : {DType::kQ1_0, DType::kNVFP4}) {
    Graph graph = MiniModel::Build();
    for (Value& value : graph.values) {
      if (value.lifetime == Lifetime::kConstant && value.type.rank > 1) value.type.dtype = dtype;
    }
    for (const PlacementPolicy& policy : {PlacementPolicy{}, PolicyWithHost(FallbackPolicy::kDeny),
                                          PolicyWithHost(FallbackPolicy::kAllow)}) {
      const auto refused = PlaceOps(graph, devices.Query(), policy);
      ASSERT_FALSE(refused.has_value());
      EXPECT_EQ(refused.error().id, "placement.refused");
      const bool nowhere = refused.error().message.find(
                               "no backend of this version decodes q1_0") != std::string::npos;
      EXPECT_EQ(nowhere, dtype == DType::kQ1_0) << refused.error().message;
      const bool other = refused.error().message.find("another backend") != std::string::npos;
      EXPECT_EQ(other, dtype != DType::kQ1_0) << refused.error().message;
    }
  }
}

TEST(Placement, AllRefusedKindsAreNamedAtOnce) {
  FakeDevices devices({{0, {OpKind::kRope, OpKind::kMatMul}}});
  for (const FallbackPolicy fallback : {FallbackPolicy::kDeny, FallbackPolicy::kList}) {
    const auto refused = PlaceOps(MiniModel::Build(), devices.Query(), PolicyWithHost(fallback));
    ASSERT_FALSE(refused.has_value());
    EXPECT_THAT(refused.error().message,
                AllOf(HasSubstr("(matmul)"), HasSubstr("refused as well: rope (no kernel)"),
                      HasSubstr("'matmul', 'rope'")));
  }
}

// Who writes a backend is told of the ops that are worth it, not only of the parts that are left.
TEST(Placement, PartsAreNamedWithTheirComposites) {
  FakeDevices devices({{0, {OpKind::kRmsNorm, OpKind::kReduce, OpKind::kMatMul}}});
  const auto refused =
      PlaceOps(MiniModel::Build(), devices.Query(), PolicyWithHost(FallbackPolicy::kDeny));
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message,
              HasSubstr("reduce is a part of rms_norm, which is refused whole"));
}

TEST(Placement, ThePolicyLetsTheHostTakeRefusedOps) {
  FakeDevices devices({{0, {OpKind::kRope}}});
  PlacementPolicy policy = PolicyWithHost(FallbackPolicy::kList);
  policy.host_ops = {"rope"};
  for (const FallbackPolicy fallback : {FallbackPolicy::kList, FallbackPolicy::kAllow}) {
    policy.fallback = fallback;
    auto placed = PlaceOps(MiniModel::Build(), devices.Query(), policy);
    ASSERT_TRUE(placed.has_value()) << placed.error().ToString();
    for (const Op& op : placed->graph.ops) {
      EXPECT_EQ(op.device, op.kind == OpKind::kRope ? 1 : 0) << NameOf(op.kind);
    }
    ASSERT_EQ(placed->report.moved_to_host.size(), 5U);
    EXPECT_EQ(placed->report.moved_to_host[0].op, "blk.0.k");
    EXPECT_EQ(placed->report.moved_to_host[0].reason, "no kernel");
    EXPECT_EQ(placed->report.ops_per_device[1], 5U);
  }
}

TEST(Placement, AListedCompositeGoesToTheHostWhole) {
  FakeDevices devices({{0, {OpKind::kSoftcap}}});
  PlacementPolicy policy = PolicyWithHost(FallbackPolicy::kList);
  policy.host_ops = {"softcap"};
  auto placed = PlaceOps(MiniModel::Build(), devices.Query(), policy);
  ASSERT_TRUE(placed.has_value());
  EXPECT_EQ(DeviceOf(placed->graph, "logits"), 1);
  EXPECT_TRUE(placed->report.decomposed.empty());
}

// Three mixtures of experts, one after the other.
Graph Mixtures() {
  GraphBuilder b("mixtures");
  ValueId x = b.Input("x", {DType::kF32, {Dim::T(), 8}});
  const ValueId weights = b.Input("weights", {DType::kF32, {Dim::T(), 2}});
  const ValueId experts = b.Input("experts", {DType::kI32, {Dim::T(), 2}});
  for (const char* name : {"first", "second", "third"}) {
    const ValueId gate = b.Constant(std::string(name) + ".gate", {DType::kF32, {4, 16, 8}});
    const ValueId down = b.Constant(std::string(name) + ".down", {DType::kF32, {4, 8, 8}});
    x = b.Add(ops::MoeFfn{.x = x,
                          .weights = weights,
                          .experts = experts,
                          .gate_weight = gate,
                          .down_weight = down},
              name);
  }
  b.Output("y", x, RowDemand::kAll);
  auto graph = std::move(b).Finish();
  EXPECT_TRUE(graph.has_value()) << graph.error().ToString();
  return *std::move(graph);
}

TEST(Placement, TheExpertsOfTheFirstLayersRunOnTheHost) {
  PlacementPolicy policy = PolicyWithHost(FallbackPolicy::kDeny);
  policy.host_expert_layers = 2;
  // The main device refuses the op, so that only the third is decomposed.
  for (const bool refused : {false, true}) {
    FakeDevices devices({{0, refused ? std::set{OpKind::kMoeFfn} : std::set<OpKind>{}}});
    auto placed = PlaceOps(Mixtures(), devices.Query(), policy);
    ASSERT_TRUE(placed.has_value()) << placed.error().ToString();
    EXPECT_EQ(DeviceOf(placed->graph, "first"), 1);
    EXPECT_EQ(DeviceOf(placed->graph, "second"), 1);
    EXPECT_EQ(CountOps(placed->graph, OpKind::kMoeFfn), refused ? 2U : 3U);
    EXPECT_EQ(placed->report.ops_per_device[1], 2U);
    ASSERT_EQ(placed->report.moved_to_host.size(), 2U);
    EXPECT_EQ(placed->report.moved_to_host[0].reason, "placement.host_expert_layers is 2");
  }
}

TEST(Placement, WithoutAHostTheExpertsStay) {
  FakeDevices devices({});
  PlacementPolicy policy;
  policy.host_expert_layers = 2;
  auto placed = PlaceOps(Mixtures(), devices.Query(), policy);
  ASSERT_TRUE(placed.has_value()) << placed.error().ToString();
  EXPECT_TRUE(placed->report.moved_to_host.empty());
}

// Two devices with one layer and two, and a host.
PlacementPolicy TwoDevices() {
  PlacementPolicy policy = PolicyWithHost(FallbackPolicy::kList);
  policy.layer_devices = {0, 1, 1};
  policy.layer_outputs = {"scaled", "blk.0.out", "blk.1.out", "blk.2.out"};
  policy.host_device = 2;
  policy.device_names = {"left", "right", "host"};
  return policy;
}

TEST(Placement, EachLayerRunsOnItsDevice) {
  FakeDevices devices({{1, {OpKind::kPleInject}}});
  PlacementPolicy policy = TwoDevices();
  policy.host_weights = {"blk.1.per_layer_token_embd"};
  auto placed = PlaceOps(MiniModel::Build(), devices.Query(), policy);
  ASSERT_TRUE(placed.has_value()) << placed.error().ToString();
  const Graph& graph = placed->graph;
  EXPECT_EQ(DeviceOf(graph, "embd"), 0);
  EXPECT_EQ(DeviceOf(graph, "blk.0.out"), 0);
  EXPECT_EQ(DeviceOf(graph, "blk.1.normed"), 1);
  EXPECT_EQ(DeviceOf(graph, "blk.1.ple"), 2);
  EXPECT_EQ(DeviceOf(graph, "blk.2.ple"), 1);
  EXPECT_EQ(DeviceOf(graph, "logits"), 1);
  EXPECT_EQ(DeviceOf(graph, "token"), 1);
  EXPECT_EQ(CountOps(graph, OpKind::kPleInject), 1U) << "decomposed where it is refused";
  EXPECT_EQ(placed->report.ops_per_device.size(), 3U);
  EXPECT_EQ(placed->report.ops_per_device[2], 1U);
}

TEST(Placement, ARefusalOfASecondDeviceNamesIt) {
  FakeDevices devices({{1, {OpKind::kRope}}});
  auto placed = PlaceOps(MiniModel::Build(), devices.Query(), TwoDevices());
  ASSERT_FALSE(placed.has_value());
  EXPECT_THAT(placed.error().message,
              AllOf(HasSubstr("'blk.1.k' (rope) is refused by right: no kernel"),
                    HasSubstr("add 'rope' to placement.host_ops")));
}

TEST(Placement, TheDeviceOfLayersMayBeTheHost) {
  FakeDevices devices({});
  PlacementPolicy policy = TwoDevices();
  policy.host_device = 1;
  policy.host_weights = {"per_layer_token_embd"};
  auto placed = PlaceOps(MiniModel::Build(), devices.Query(), policy);
  ASSERT_TRUE(placed.has_value()) << placed.error().ToString();
  EXPECT_EQ(DeviceOf(placed->graph, "blk.0.ple"), 1);
  EXPECT_EQ(DeviceOf(placed->graph, "blk.2.ple"), 1);
  ASSERT_EQ(placed->report.moved_to_host.size(), 1U) << "those of the other layers are at home";
}

TEST(Placement, OpsOnHostWeightsRunOnTheHost) {
  FakeDevices devices({});
  PlacementPolicy policy = PolicyWithHost(FallbackPolicy::kList);
  policy.host_weights = {"per_layer_token_embd"};
  auto graph = ApplyRowDemand(MiniModel::Build(), DemandMode::kPerOutput);
  ASSERT_TRUE(graph.has_value());
  auto placed = PlaceOps(*graph, devices.Query(), policy);
  ASSERT_TRUE(placed.has_value()) << placed.error().ToString();
  for (const char* name : {"blk.0.ple", "blk.1.ple", "blk.2.ple"}) {
    EXPECT_EQ(DeviceOf(placed->graph, name), 1) << name;
  }
  EXPECT_EQ(DeviceOf(placed->graph, "embd"), 0);
  // The ids of the wanted rows move to the host too, which avoids a round trip.
  EXPECT_EQ(DeviceOf(placed->graph, "tokens/rows"), 1);
  EXPECT_EQ(DeviceOf(placed->graph, "pos/rows"), 0);
  EXPECT_EQ(placed->report.ops_per_device[1], 4U);
}

TEST(Placement, HostWeightsStayOnTheMainDeviceWithoutPermission) {
  PlacementPolicy policy = PolicyWithHost(FallbackPolicy::kDeny);
  policy.host_weights = {"per_layer_token_embd"};
  FakeDevices devices({});
  auto denied = PlaceOps(MiniModel::Build(), devices.Query(), policy);
  ASSERT_TRUE(denied.has_value());
  EXPECT_EQ(denied->report.ops_per_device[1], 0U);

  policy.fallback = FallbackPolicy::kList;
  policy.host_weights = {"o.weight"};  // read by matmul, which is not in host_ops
  auto unlisted = PlaceOps(MiniModel::Build(), devices.Query(), policy);
  ASSERT_TRUE(unlisted.has_value());
  EXPECT_EQ(unlisted->report.ops_per_device[1], 0U);
}

TEST(Placement, AnswersOfTheWrongLengthAreRefused) {
  const SupportQuery query = [](int, const Graph&) { return std::vector<std::string>(3); };
  auto placed = PlaceOps(MiniModel::Build(), query, PlacementPolicy{});
  ASSERT_FALSE(placed.has_value());
  EXPECT_EQ(placed.error().id, "placement.query");
}

TEST(Placement, ErrorsOfTheQueryPassThrough) {
  const SupportQuery query = [](int, const Graph&) -> Result<std::vector<std::string>> {
    return MakeError(ErrorKind::kBackend, "device.lost", "gone");
  };
  auto placed = PlaceOps(MiniModel::Build(), query, PlacementPolicy{});
  ASSERT_FALSE(placed.has_value());
  EXPECT_EQ(placed.error().id, "device.lost");
}

}  // namespace
}  // namespace rullama
