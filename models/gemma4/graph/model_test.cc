#include "models/gemma4/graph/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <string>

#include "core/ir/media_names.h"
#include "core/ir/verify.h"
#include "core/passes/row_demand.h"
#include "models/gemma4/graph/gemma4_loading_test_util.h"

namespace rullama {
namespace {

ArchitectureConfig E2B() {
  ArchitectureConfig a;
  a.layers = 35;
  a.width = 1536;
  a.heads = 8;
  a.kv_heads = {1, 1};
  a.head_dim = {256, 512};
  a.ffn = {6144, 12288};
  a.sliding_window = 512;
  a.pattern = 5;
  a.shared_kv_layers = 20;
  a.ple_dim = 256;
  a.vocabulary = 262144;
  a.context_length = 131072;
  return a;
}

Gemma4Config ConfigOf(const ArchitectureConfig& architecture) {
  return Must(Gemma4Config::FromArchitecture(architecture));
}

Gemma4Weights Half(const Gemma4Config& config) {
  return Gemma4Weights::Synthetic(config, [](const TensorSpec&) { return DType::kF16; });
}

std::map<OpKind, int> CountOps(const Graph& graph) {
  std::map<OpKind, int> counts;
  for (const Op& op : graph.ops) ++counts[op.kind];
  return counts;
}

uint64_t StateBytes(const Graph& graph) {
  uint64_t bytes = 0;
  for (ValueId id = 0; id < graph.values.size(); ++id) {
    const Value& value = graph.value(id);
    if (value.lifetime == Lifetime::kState && value.state == id) {
      bytes += value.type.BytesAt(graph.MaxExtents());
    }
  }
  return bytes;
}

Graph Finish(Result<ModelGraph> built) {
  ModelGraph model = Must(std::move(built));
  AddLogitsOutput(model.builder, model.logits, RowDemand::kWanted);
  Graph graph = Must(std::move(model.builder).Finish());
  const Status verified = Verify(graph);
  EXPECT_TRUE(verified.has_value()) << verified.error().ToString();
  return graph;
}

ModelGraph Built(const LoadedGemma4& model) {
  return Must(BuildModel(model.config, model.weights, {.slots = 1, .capacity = 64}));
}

TEST(Gemma4ModelTest, BuildsE2BAtFullSize) {
  const Gemma4Config config = ConfigOf(E2B());
  const BuildOptions options{.slots = 1, .capacity = 131072, .max_t = 512, .max_r = 1};
  const Graph graph = Finish(BuildModel(config, Half(config), options));

  auto counts = CountOps(graph);
  EXPECT_EQ(counts[OpKind::kAttention], 35);
  EXPECT_EQ(counts[OpKind::kPleInject], 35);
  EXPECT_EQ(counts[OpKind::kGeGluLinear], 35);
  EXPECT_EQ(counts[OpKind::kResidualNorm], 2 * 35);
  EXPECT_EQ(counts[OpKind::kStateAppend], 2 * 15);
  EXPECT_EQ(counts[OpKind::kCast], 2 * 15);
  EXPECT_EQ(counts[OpKind::kRope], 35 + 15);
  // q, attention output and FFN down of each layer, K and V of 15, two PLE groups, the head.
  EXPECT_EQ(counts[OpKind::kMatMul], 3 * 35 + 2 * 15 + 2 + 1);
  // Token rows once, per-layer rows once for each group.
  EXPECT_EQ(counts[OpKind::kGatherRows], 3);
  EXPECT_EQ(graph.max_t, 512);
  EXPECT_EQ(ToString(graph.type(graph.Find("logits"))), "f32[T,262144]");
}

TEST(Gemma4ModelTest, CacheOfE2BIsRingsAndGlobalsOnly) {
  const Gemma4Config config = ConfigOf(E2B());
  const BuildOptions options{.slots = 1, .capacity = 131072};
  const Graph graph = Finish(BuildModel(config, Half(config), options));
  // 12 sliding layers hold a ring of 512 rows of 256 values, 3 global ones (4, 9, 14) all 131,072
  // rows of 512 values; keys and values, 2 bytes each.
  constexpr uint64_t kExpected = 2 * 2 * (12 * 512 * 256 + 3 * 131072 * 512ull);
  EXPECT_EQ(kExpected, 811597824u);
  EXPECT_EQ(StateBytes(graph), kExpected);
  EXPECT_EQ(CacheBytes(config, options), kExpected);
}

TEST(Gemma4ModelTest, SharedLayersReadTheOldStateAndFreshRowsOfTheirDonor) {
  const Gemma4Config config = ConfigOf(E2B());
  const Graph graph = Finish(BuildModel(config, Half(config), {.slots = 2, .capacity = 64}));
  std::map<std::string, const Op*> attention;
  for (const Op& op : graph.ops) {
    if (op.kind == OpKind::kAttention) attention[graph.value(op.results[0]).name] = &op;
  }
  const auto operand = [&](const std::string& op, size_t i) {
    return graph.value(attention.at(op)->inputs[i]).name;
  };
  EXPECT_EQ(operand("blk.15.attn.mix", 1), "blk.13.attn.k");
  EXPECT_EQ(operand("blk.15.attn.mix", 4), "blk.13.v");
  EXPECT_EQ(operand("blk.34.attn.mix", 2), "blk.14.attn.v");
  EXPECT_EQ(operand("blk.34.attn.mix", 3), "blk.14.k");
  EXPECT_EQ(attention.at("blk.15.attn.mix")->As<rl_attention_attrs>().window, 512);
  EXPECT_EQ(attention.at("blk.34.attn.mix")->As<rl_attention_attrs>().window, 0);
  EXPECT_EQ(ToString(graph.type(graph.Find("blk.13.k"))), "f16[2,64,1,256]");
}

TEST(Gemma4ModelTest, EveryAppendFollowsAllReadersOfItsState) {
  const Gemma4Config config = ConfigOf(E2B());
  const Graph graph = Finish(BuildModel(config, Half(config), {.slots = 1, .capacity = 64}));
  std::set<ValueId> appended;
  for (const Op& op : graph.ops) {
    for (const ValueId input : op.inputs) EXPECT_FALSE(appended.contains(input));
    if (op.kind == OpKind::kStateAppend) appended.insert(op.inputs[0]);
  }
  EXPECT_EQ(appended.size(), 30u);
}

TEST(Gemma4ModelTest, NamesAreUnique) {
  const Gemma4Config config = ConfigOf(E2B());
  const Graph graph = Finish(BuildModel(config, Half(config), {.slots = 1, .capacity = 64}));
  std::set<std::string> names;
  for (const Value& value : graph.values)
    EXPECT_TRUE(names.insert(value.name).second) << value.name;
}

TEST(Gemma4ModelTest, PerLayerInputsComeInTwoGroups) {
  const Gemma4Config config = ConfigOf(E2B());
  const Graph graph = Finish(BuildModel(config, Half(config), {.slots = 1, .capacity = 64}));
  const ValueId projection = graph.Find("per_layer_model_proj.weight@3840");
  ASSERT_NE(projection, kNoValue);
  EXPECT_EQ(graph.value(projection).first_row, 15 * 256);
  EXPECT_EQ(ToString(graph.type(projection)), "f16[5120,1536]");
  EXPECT_EQ(ToString(graph.type(graph.Find("ple.owned.inputs"))), "f32[T,15,256]");
  EXPECT_EQ(ToString(graph.type(graph.Find("ple.shared.inputs"))), "f32[T,20,256]");
}

// The row-demand pass finds in this graph that a prefill chunk needs nothing after the last layer
// that fills a cache, and the last chunk needs only the wanted rows there.
TEST(Gemma4ModelTest, PrefillLeavesOutWhatFeedsNoCache) {
  const Gemma4Config config = ConfigOf(E2B());
  const Graph graph = Finish(
      BuildModel(config, Half(config), {.slots = 1, .capacity = 64, .max_t = 64, .max_r = 4}));
  const auto chunk = ApplyRowDemand(graph, DemandMode::kStateOnly);
  ASSERT_TRUE(chunk.has_value()) << chunk.error().ToString();
  auto counts = CountOps(*chunk);
  EXPECT_EQ(counts[OpKind::kAttention], 14);
  EXPECT_EQ(counts[OpKind::kGeGluLinear], 14);
  EXPECT_EQ(counts[OpKind::kStateAppend], 30);
  EXPECT_EQ(counts[OpKind::kGatherRows], 2);
  EXPECT_EQ(chunk->Find("ple.shared.inputs"), kNoValue);

  const auto last = ApplyRowDemand(graph, DemandMode::kPerOutput);
  ASSERT_TRUE(last.has_value()) << last.error().ToString();
  int narrow = 0;
  for (const Op& op : last->ops) {
    if (op.kind == OpKind::kAttention && last->type(op.results[0]).rows() == Dim::R()) ++narrow;
  }
  EXPECT_EQ(narrow, 35 - 14);
  EXPECT_EQ(ToString(last->type(last->Find("ple.shared.inputs"))), "f32[R,20,256]");
}

TEST(Gemma4ModelTest, WithoutPleTheScaleFoldsIntoTheSecondResidual) {
  ArchitectureConfig a = E2B();
  a.ple_dim = 0;
  a.shared_kv_layers = 0;
  a.k_eq_v = true;
  const Gemma4Config config = ConfigOf(a);
  const Graph graph = Finish(BuildModel(config, Half(config), {.slots = 1, .capacity = 64}));
  auto counts = CountOps(graph);
  EXPECT_EQ(counts[OpKind::kPleInject], 0);
  // Global layers have no V projection: V comes from the keys before norm and rotation.
  EXPECT_EQ(counts[OpKind::kMatMul], 35 * 5 - 7 + 1);
  EXPECT_EQ(graph.Find("blk.4.attn.v.heads"), kNoValue);
  const Op& v_norm = graph.ops[graph.value(graph.Find("blk.4.attn.v.f32")).producer];
  EXPECT_EQ(graph.value(v_norm.inputs[0]).name, "blk.4.attn.k.heads");
  EXPECT_EQ(v_norm.inputs[1], kNoValue);
  const Op& out = graph.ops[graph.value(graph.Find("blk.4.out")).producer];
  EXPECT_EQ(graph.value(out.inputs[3]).name, "blk.4.layer_output_scale.weight");
}

Graph MediaGraph(const Gemma4Config& config) {
  return Finish(
      BuildModel(config, Half(config), {.pass = ModelPass::kMedia, .slots = 1, .capacity = 64}));
}

TEST(Gemma4ModelTest, SoftTokensTakeThePlaceOfScaledEmbeddings) {
  const Gemma4Config config = ConfigOf(E2B());
  const Graph graph = MediaGraph(config);
  const auto producer = [&](std::string_view name) {
    return graph.ops[graph.value(graph.Find(name)).producer];
  };
  const auto input = [&](const Op& op, size_t i) { return graph.value(op.inputs[i]).name; };
  EXPECT_EQ(input(producer("embd"), 1), media_names::kSoft) << "unscaled";
  EXPECT_EQ(input(producer("embd.kept"), 0), "embd.token");
  EXPECT_EQ(input(producer("embd.kept"), 1), media_names::kKeep);
  EXPECT_EQ(input(producer("ple.owned.project"), 0), "embd") << "the soft token itself";
  EXPECT_EQ(input(producer("blk.0.attn.norm"), 0), "embd");
  EXPECT_EQ(graph.Find(media_names::kLastSeen), kNoValue) << "with PLE every row is causal";
}

TEST(Gemma4ModelTest, RowsOfAPictureSeeEachOtherOnSlidingLayersWithoutPle) {
  ArchitectureConfig a = E2B();
  a.ple_dim = 0;
  a.shared_kv_layers = 0;
  const Gemma4Config config = ConfigOf(a);
  const Graph graph = MediaGraph(config);
  const ValueId last_seen = graph.Find(media_names::kLastSeen);
  ASSERT_NE(last_seen, kNoValue);
  std::map<ValueId, int> readers;
  for (const Op& op : graph.ops) {
    if (op.kind != OpKind::kAttention) continue;
    const bool sliding = op.As<rl_attention_attrs>().window > 0;
    EXPECT_EQ(op.inputs[operands::Attention::q_end], sliding ? last_seen : kNoValue);
    ++readers[op.inputs[operands::Attention::q_end]];
  }
  EXPECT_EQ(readers[last_seen], 28);
  EXPECT_EQ(readers[kNoValue], 7);
}

TEST(Gemma4ModelTest, CacheInF32NeedsNoCast) {
  const Gemma4Config config = ConfigOf(E2B());
  const Graph graph = Finish(
      BuildModel(config, Half(config), {.slots = 1, .capacity = 64, .kv_dtype = DType::kF32}));
  EXPECT_EQ(CountOps(graph)[OpKind::kCast], 0);
}

TEST(Gemma4ModelTest, MissingRopeFactorsAreSynthetic) {
  Gemma4TestFile source = Gemma4TestFile::Small();
  source.Remove("rope_freqs.weight");
  const ModelGraph model = Built(Must(LoadGemma4(source)));
  ASSERT_EQ(model.constants.size(), 1u);
  EXPECT_EQ(model.constants[0].name, "rope_freqs.weight");
  EXPECT_EQ(ToString(model.constants[0].type), "f32[8]");
  float factors[8];
  ASSERT_EQ(model.constants[0].bytes.size(), sizeof(factors));
  std::memcpy(factors, model.constants[0].bytes.data(), sizeof(factors));
  EXPECT_THAT(factors, testing::ElementsAre(1, 1, 1e30F, 1e30F, 1e30F, 1e30F, 1e30F, 1e30F));
}

TEST(Gemma4ModelTest, SuppressedTokensAreBannedInTheLogits) {
  Gemma4TestFile source = Gemma4TestFile::Small();
  source.SetArray<int32_t>("tokenizer.ggml.suppress_tokens", {7, 3, 7});
  const LoadedGemma4 loaded = Must(LoadGemma4(source));
  EXPECT_THAT(loaded.config.suppress_tokens, testing::ElementsAre(3, 7));
  ModelGraph model = Built(loaded);
  ASSERT_EQ(model.constants.size(), 2u);
  EXPECT_EQ(ToString(model.constants[0].type), "i32[2]");
  float bias[2];
  std::memcpy(bias, model.constants[1].bytes.data(), sizeof(bias));
  EXPECT_EQ(bias[0], -INFINITY);
  const Graph graph = Finish(std::move(model));
  EXPECT_EQ(graph.ops.back().kind, OpKind::kBiasAdd);
}

TEST(Gemma4ModelTest, HiddenStatesAreTheResidualStream) {
  const ModelGraph model = Built(Must(LoadGemma4(Gemma4TestFile::Small())));
  ASSERT_EQ(model.hidden.size(), 6u);
  const Graph& graph = model.builder.graph();
  EXPECT_EQ(graph.value(model.hidden.front()).name, "embd");
  EXPECT_EQ(graph.value(model.hidden.back()).name, "blk.4.out");
  EXPECT_TRUE(model.constants.empty());
}

TEST(Gemma4ModelTest, OptionsOutOfRangeAreRefused) {
  const Gemma4Config config = ConfigOf(E2B());
  const Gemma4Weights weights = Half(config);
  const auto id = [&](const BuildOptions& options) {
    const auto model = BuildModel(config, weights, options);
    return model ? std::string("none") : model.error().id;
  };
  EXPECT_EQ(id({.slots = 0, .capacity = 64}), "model.slots");
  EXPECT_EQ(id({.slots = 1, .capacity = 0}), "model.capacity");
  EXPECT_EQ(id({.slots = 1, .capacity = 131073}), "model.capacity");
  EXPECT_EQ(id({.slots = 1, .capacity = 64, .max_t = 0}), "model.rows");
  EXPECT_EQ(id({.slots = 1, .capacity = 64, .max_t = 1, .max_r = 2}), "model.rows");
  EXPECT_EQ(id({.slots = 1, .capacity = 64, .kv_dtype = DType::kQ5_0}), "model.kv_dtype");
  EXPECT_EQ(id({.slots = 1, .capacity = 64, .kv_dtype = {DType::kQ8_0, DType::kQ4_K}}),
            "model.kv_dtype");
  EXPECT_EQ(id({.slots = 1, .capacity = 64, .kv_dtype = {DType::kQ8_0, DType::kQ4_0}}), "none");
}

}  // namespace
}  // namespace rullama
