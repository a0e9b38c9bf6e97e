// Drawings of graphs: folded and opened blocks, parts on several devices, names that try to be
// markup.
#include "cli/reports/graph_drawing.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "cli/reports/graph_page.h"
#include "core/drawing/markup_test_util.h"
#include "core/ir/builder.h"

namespace rullama::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kHostileOp = "blk.1.</text><script>\"'";

// x -> blk.0 (two norms) -> blk.1 (concat of both) -> y.
Graph TwoBlocks() {
  GraphBuilder builder("g");
  const TensorType rows(DType::kF32, {Dim::T(), 64});
  const ValueId x = builder.Input("x", rows);
  const ValueId w = builder.Constant("blk.0.w", TensorType(DType::kF32, {64}));
  const ValueId a = builder.Add(ops::RmsNorm{.x = x, .weight = w, .eps = 1e-6F}, "blk.0.a");
  const ValueId b = builder.Add(ops::RmsNorm{.x = a, .weight = w, .eps = 1e-6F}, "blk.0.b");
  const ValueId sum = builder.Add(ops::Concat{.a = a, .b = b, .axis = 1}, kHostileOp);
  builder.Output("y", builder.Add(ops::Softcap{.x = sum, .cap = 30}, "y"), RowDemand::kAll);
  auto graph = std::move(builder).Finish();
  EXPECT_TRUE(graph) << graph.error().ToString();
  return *graph;
}

std::string Draw(const std::vector<DrawnPart>& parts, const DrawingOptions& options) {
  const auto picture = DrawGraph(parts, options);
  EXPECT_TRUE(picture) << picture.error().ToString();
  const std::string svg = drawing::SvgFile(*picture);
  EXPECT_EQ(drawing::MarkupFault(svg), "");
  EXPECT_EQ(drawing::ForeignPart(svg), "");
  return svg;
}

TEST(GraphDrawingTest, BlocksAreFoldedToBoxes) {
  const Graph graph = TwoBlocks();
  const std::string svg = Draw({{&graph, 0}}, {.title = kHostileOp});
  EXPECT_THAT(svg, HasSubstr(">block 0<"));
  EXPECT_THAT(svg, HasSubstr(">2 ops<"));
  EXPECT_THAT(svg, HasSubstr(">1 weights, 0.2 KiB<"));
  EXPECT_THAT(svg, HasSubstr(">softcap<"));
  EXPECT_THAT(svg, HasSubstr(">f32[T,64]<"));
  EXPECT_THAT(svg, Not(HasSubstr(">rms_norm<")));
}

TEST(GraphDrawingTest, OpenedBlocksShowOpsAndNameOperandsOfTheSameShape) {
  const Graph graph = TwoBlocks();
  const std::string svg = Draw({{&graph, 0}}, {.title = "t", .opened = BlockRange{0, 1}});
  EXPECT_THAT(svg, HasSubstr(">rms_norm<"));
  EXPECT_THAT(svg, HasSubstr(">weight f32[64]<"));
  EXPECT_THAT(svg, HasSubstr(">a: f32[T,64]<"));
  EXPECT_THAT(svg, HasSubstr(">b: f32[T,64]<"));
  EXPECT_THAT(svg, Not(HasSubstr("2 ops")));
}

TEST(GraphDrawingTest, OnlyOneBlockHasItsNeighboursAsStubs) {
  const Graph graph = TwoBlocks();
  const std::string svg = Draw({{&graph, 0}}, {.title = "t", .only = 1});
  EXPECT_THAT(svg, HasSubstr("class=\"stub\""));
  EXPECT_THAT(svg, HasSubstr(">block 0<"));
  EXPECT_THAT(svg, HasSubstr("&lt;script&gt;"));
  EXPECT_THAT(svg, Not(HasSubstr(">rms_norm<")));
}

TEST(GraphDrawingTest, PartsAreJoinedByNameAndColouredByDevice) {
  GraphBuilder first("first"), second("second");
  const TensorType rows(DType::kF32, {Dim::T(), 64});
  const ValueId x = first.Input("x", rows);
  first.Output("mid", first.Add(ops::Softcap{.x = x, .cap = 30}, "mid"), RowDemand::kAll);
  const ValueId mid = second.Input("mid", rows);
  second.Output("y", second.Add(ops::Softcap{.x = mid, .cap = 30}, "y"), RowDemand::kAll);
  const Graph a = *std::move(first).Finish();
  const Graph b = *std::move(second).Finish();
  const std::string svg = Draw({{&a, 0}, {&b, 1}}, {.title = "t", .device_names = {"cpu", "gpu"}});
  EXPECT_THAT(svg, HasSubstr("<g class=\"node s1\">"));
  EXPECT_THAT(svg, HasSubstr(">gpu<"));
  EXPECT_THAT(svg, HasSubstr("class=\"edge\"")) << "the second part reads the first";
}

TEST(GraphDrawingTest, OpsOfADispatchShareAColour) {
  const Graph graph = TwoBlocks();  // two norms, concat and softcap
  const std::vector<DrawnPart> parts = {{&graph, 0, {7, 1, 1, 2}}};
  const std::string opened = Draw(parts, {.title = "t", .opened = BlockRange{0, 1}});
  EXPECT_THAT(opened, HasSubstr("class=\"node alone s1\"")) << "7 is the second of six colours";
  EXPECT_THAT(opened, HasSubstr("class=\"node s1\""));
  EXPECT_THAT(opened, HasSubstr("class=\"node alone s2\""));
  const std::string folded = Draw(parts, {.title = "t"});
  EXPECT_THAT(folded, HasSubstr(">2 ops in 2 dispatches<"));
}

TEST(GraphDrawingTest, ReadersAreBelow) {
  const Graph graph = TwoBlocks();
  const std::string svg = Draw({{&graph, 0}}, {.title = "t"});
  const std::regex box("<g class=\"node s0\"><rect x=\"[-0-9.]+\" y=\"([-0-9.]+)\"");
  std::vector<double> tops;
  for (std::sregex_iterator at(svg.begin(), svg.end(), box), end; at != end; ++at) {
    tops.push_back(std::stod((*at)[1]));
  }
  ASSERT_EQ(tops.size(), 3u);
  EXPECT_LT(tops[0], tops[1]);
  EXPECT_LT(tops[1], tops[2]);
}

// Positions (an op on i32) are read by blocks only, whose boxes do not show it.
Graph AlikeBlocks() {
  GraphBuilder builder("g");
  const TensorType index(DType::kI32, {Dim::T()});
  const ValueId pos = builder.Add(ops::Copy{.x = builder.Input("pos", index)}, "positions");
  ValueId x = builder.Input("x", TensorType(DType::kF32, {Dim::T(), 2, 8}));
  for (int64_t i = 0; i < 5; ++i) {
    x = builder.Add(ops::Rope{.x = x, .pos = pos, .theta = 1e4F, .n_rot = 8},
                    fmt::format("blk.{}.rope", i));
  }
  builder.Output("y", builder.Add(ops::Softcap{.x = x, .cap = 30}, "y"), RowDemand::kAll);
  auto graph = std::move(builder).Finish();
  EXPECT_TRUE(graph) << graph.error().ToString();
  return *graph;
}

TEST(GraphDrawingTest, EqualBlocksInARowAreOneBox) {
  const Graph graph = AlikeBlocks();
  const std::string svg = Draw({{&graph, 0}}, {.title = "t"});
  EXPECT_THAT(svg, HasSubstr(">blocks 0 to 4<"));
  EXPECT_THAT(svg, HasSubstr(">5 alike, each with<"));
  EXPECT_THAT(svg, Not(HasSubstr(">block 1<")));
  const std::string opened = Draw({{&graph, 0}}, {.title = "t", .opened = BlockRange{2, 2}});
  EXPECT_THAT(opened, HasSubstr(">blocks 0 to 1<"));
  EXPECT_THAT(opened, HasSubstr(">blocks 3 to 4<"));
}

TEST(GraphDrawingTest, WhatOnlyFoldedBlocksReadIsNotDrawn) {
  const Graph graph = AlikeBlocks();
  EXPECT_THAT(Draw({{&graph, 0}}, {.title = "t"}), Not(HasSubstr(">positions<")));
  EXPECT_THAT(Draw({{&graph, 0}}, {.title = "t", .opened = BlockRange{2, 2}}),
              HasSubstr(">positions<"));
}

TEST(GraphDrawingTest, FoldedBlocksTellWhatTheirAttentionSees) {
  GraphBuilder builder("g");
  const TensorType index(DType::kI32, {Dim::T()});
  const TensorType fresh(DType::kF32, {Dim::T(), 1, 8});
  const TensorType cache(DType::kF32, {2, 64, 1, 8});
  const ValueId pos = builder.Input("pos", index), slot = builder.Input("slot", index);
  const ValueId k = builder.Input("k", fresh), v = builder.Input("v", fresh);
  const ValueId past = builder.Input("past", {DType::kI32, {2}});
  ValueId x = builder.Input("x", {DType::kF32, {Dim::T(), 2, 8}});
  for (int64_t i = 0; i < 2; ++i) {
    x = builder.Add(ops::Attention{.q = x,
                                   .k_new = k,
                                   .v_new = v,
                                   .k_state = builder.Input(fmt::format("k{}", i), cache),
                                   .v_state = builder.Input(fmt::format("v{}", i), cache),
                                   .q_pos = pos,
                                   .q_slot = slot,
                                   .kv_pos = pos,
                                   .kv_slot = slot,
                                   .past = past,
                                   .mask = RL_MASK_CAUSAL,
                                   .window = i == 0 ? 16 : 0,
                                   .scale = 1},
                    fmt::format("blk.{}.mix", i));
  }
  builder.Output("y", x, RowDemand::kAll);
  const auto graph = std::move(builder).Finish();
  ASSERT_TRUE(graph) << graph.error().ToString();
  const std::string svg = Draw({{&*graph, 0}}, {.title = "t"});
  EXPECT_THAT(svg, HasSubstr(">attention to 16 positions<"));
  EXPECT_THAT(svg, HasSubstr(">attention to all positions<"));
  EXPECT_THAT(svg, HasSubstr(">block 1<")) << "the two differ";
}

TEST(GraphPageTest, HasEachBlockAndStaysText) {
  const Graph graph = TwoBlocks();
  const auto page = GraphPage(kHostileOp, {{&graph, 0}}, {});
  ASSERT_TRUE(page) << page.error().ToString();
  EXPECT_EQ(drawing::MarkupFault(*page), "");
  EXPECT_EQ(drawing::ForeignPart(*page), "");
  EXPECT_THAT(*page, HasSubstr("<summary>Block 0: 2 ops</summary>"));
  EXPECT_THAT(*page, HasSubstr("<summary>Block 1: 1 ops</summary>"));
}

}  // namespace
}  // namespace rullama::cli
