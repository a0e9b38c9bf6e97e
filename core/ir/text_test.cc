#include "core/ir/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "core/ir/builder.h"
#include "core/ir/dot.h"
#include "core/ir/op_cases_test_util.h"

namespace rullama {
namespace {

using test::F;
using test::I;
using ::testing::HasSubstr;

void ExpectSame(const Graph& a, const Graph& b) {
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.max_t, b.max_t);
  EXPECT_EQ(a.max_r, b.max_r);
  EXPECT_EQ(a.rows_input, b.rows_input);
  ASSERT_EQ(a.values.size(), b.values.size());
  for (size_t i = 0; i < a.values.size(); ++i) {
    SCOPED_TRACE(a.values[i].name);
    EXPECT_EQ(a.values[i].type, b.values[i].type);
    EXPECT_EQ(a.values[i].lifetime, b.values[i].lifetime);
    EXPECT_EQ(a.values[i].name, b.values[i].name);
    EXPECT_EQ(a.values[i].producer, b.values[i].producer);
    EXPECT_EQ(a.values[i].source, b.values[i].source);
    EXPECT_EQ(a.values[i].first_row, b.values[i].first_row);
    EXPECT_EQ(a.values[i].state, b.values[i].state);
  }
  ASSERT_EQ(a.ops.size(), b.ops.size());
  for (size_t i = 0; i < a.ops.size(); ++i) {
    SCOPED_TRACE(NameOf(a.ops[i].kind));
    EXPECT_EQ(a.ops[i].kind, b.ops[i].kind);
    EXPECT_EQ(a.ops[i].inputs, b.ops[i].inputs);
    EXPECT_EQ(a.ops[i].results, b.ops[i].results);
    EXPECT_EQ(a.ops[i].device, b.ops[i].device);
    for (const AttrInfo& attr : InfoOf(a.ops[i].kind).attrs) {
      const size_t size = attr.type == AttrType::kI64 ? 8 : 4;
      const auto* bytes_a = static_cast<const std::byte*>(a.ops[i].attrs.data()) + attr.offset;
      const auto* bytes_b = static_cast<const std::byte*>(b.ops[i].attrs.data()) + attr.offset;
      EXPECT_EQ(std::memcmp(bytes_a, bytes_b, size), 0) << attr.name;
    }
  }
  ASSERT_EQ(a.outputs.size(), b.outputs.size());
  for (size_t i = 0; i < a.outputs.size(); ++i) {
    EXPECT_EQ(a.outputs[i].name, b.outputs[i].name);
    EXPECT_EQ(a.outputs[i].value, b.outputs[i].value);
    EXPECT_EQ(a.outputs[i].demand, b.outputs[i].demand);
  }
}

// Everything the format can say, in a few lines.
Graph SampleGraph() {
  GraphBuilder b("sample \"1\"");
  const Dim t = Dim::T();
  const ValueId tokens = b.Input("tokens", I({t}));
  const ValueId pos = b.Input("pos", I({t}));
  const ValueId slot = b.Input("slot", I({t}));
  const ValueId rows = b.Input("rows", I({Dim::R()}));
  const ValueId table = b.Constant("token_embd.weight", {DType::kQ6_K, {2048, 256}});
  const ValueId gate = b.Constant("gate_up", {DType::kQ4_K, {512, 256}}, 128);
  const ValueId state = b.State("history", I({2, 64}));
  const ValueId x =
      b.Add(ops::GatherRows{.table = table, .ids = tokens, .column = 0, .columns = 256}, "embd");
  const ValueId norm = b.Add(ops::RmsNorm{.x = x, .eps = 1e-6F}, "norm");
  const ValueId h = b.Add(ops::Linear(norm, gate), "h");
  const ValueId s = b.Add(ops::Select{.condition = h, .a = h, .otherwise = -INFINITY}, "masked");
  const auto top = b.Add(ops::TopK{.x = s, .k = 4}, "top");
  b.Add(ops::StateAppend{.state = state, .rows = tokens, .pos = pos, .slot = slot}, "history.next");
  b.WantedRows(rows);
  b.Output("values", top.values);
  b.Output("indices", top.indices, RowDemand::kAll);
  Graph graph = *std::move(b).Finish();
  graph.max_t = 512;
  graph.max_r = 8;
  graph.values[gate].name = "a name of \\ its own\n";
  graph.ops[2].device = 1;
  return graph;
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(TextTest, EveryOpRoundTrips) {
  for (const test::OpCase& row : test::OpCases()) {
    SCOPED_TRACE(NameOf(row.use.kind));
    const Graph graph = test::GraphOf(row.use);
    const std::string text = PrintText(graph);
    const auto parsed = ParseText(text);
    ASSERT_TRUE(parsed) << parsed.error().ToString() << "\n" << text;
    ExpectSame(graph, *parsed);
    EXPECT_EQ(PrintText(*parsed), text);
  }
}

TEST(TextTest, GoldenFile) {
  const std::string path = RULLAMA_SOURCE_DIR "/tests/data/ir/sample.txt";
  const std::string text = PrintText(SampleGraph());
  if (std::getenv("RULLAMA_UPDATE_GOLDENS") != nullptr) std::ofstream(path) << text;
  EXPECT_EQ(text, ReadFile(path));
  const auto parsed = ParseText(text);
  ASSERT_TRUE(parsed) << parsed.error().ToString();
  ExpectSame(SampleGraph(), *parsed);
}

TEST(TextTest, CommentsAndLayoutDoNotMatter) {
  const auto graph = ParseText(
      "# a comment\ngraph \"g\"\tT<=4 R<=0\n"
      "%0=input\"x\":f32[ T , 8+R ]# another\r\n%1 \"y\"=\n copy ( %0 ) : f32[T,R+8]\n"
      "output \"y\"=%1 all");
  ASSERT_TRUE(graph) << graph.error().ToString();
  EXPECT_EQ(graph->type(1), F({Dim::T(), Dim(8, 0, 1)}));
}

TEST(TextTest, FloatsKeepTheirBits) {
  for (const float value : {0.1F, -0.0F, 1e-45F, 3.4028235e38F, INFINITY, -INFINITY}) {
    GraphBuilder b("g");
    const ValueId x = b.Input("x", F({Dim::T(), 8}));
    b.Output("y", b.Add(ops::Affine{.x = x, .scale = value, .bias = value}), RowDemand::kAll);
    const Graph graph = *std::move(b).Finish();
    const auto parsed = ParseText(PrintText(graph));
    ASSERT_TRUE(parsed) << parsed.error().ToString();
    ExpectSame(graph, *parsed);
  }
}

struct BadText {
  std::string text;
  std::string fragment;
};

TEST(TextTest, ErrorsSayWhereAndWhat) {
  const std::string head = "graph \"g\" T<=4 R<=1\n%0 = input \"x\" : f32[T,8]\n";
  const std::vector<BadText> cases = {
      {"", "line 1, column 1: expected 'graph'"},
      {"graph x", "line 1, column 7: expected '\"'"},
      {"graph \"g\" T<=99999999999999999999 R<=1", "the largest T is out of range"},
      {"graph \"g\" T<=4 R<=", "expected the largest R"},
      {"graph \"g\" T<=0 R<=0", "max T = 0"},
      {"graph \"g", "the string has no closing quote"},
      {"graph \"a\\q\"", "expected \\\", \\\\, \\n or \\x"},
      {"graph \"a\\x4\"", "two hexadecimal digits"},
      {head + "bogus", "line 3, column 6: expected %<id>, 'rows' or 'output'"},
      {head + "%0 = input \"y\" : f32[T]", "%0 is defined twice"},
      {head + "%9 = input \"y\" : f32[T]", "the numbers of values have a gap: %1"},
      {head + "%4294967294 = input \"y\" : f32[T]", "is beyond the 65536 values"},
      {head + "%-1 = input \"y\" : f32[T]", "expected a value number"},
      {head + "%1, %2 = input \"y\" : f32[T]", "input defines one value"},
      {head + "%1 \"n\" = input \"y\" : f32[T]", "comes after the word"},
      {head + "%1 = input \"y\" : f33[T]", "'f33' is not an element type"},
      {head + "%1 = input \"y\" : f32[]", "expected a dimension"},
      {head + "%1 = input \"y\" : f32[1,1,1,1,1]", "more than 4 dimensions"},
      {head + "%1 = input \"y\" : f32[99999999999T]", "factor 99999999999 is out of range"},
      {head + "%1 = input \"y\" : f32[2147483647T+T]", "the dimension is out of range"},
      {head + "%1 = input \"y\" : f32[9223372036854775807+1]", "the dimension is out of range"},
      {head + "%1 = input \"y\" : f32[8", "expected ']'"},
      {head + "%1 \"y\" = frobnicate(%0) : f32[T,8]", "'frobnicate' is not an op"},
      {head + "%1 \"y\" = copy(%7) : f32[T,8]", "%7 is not defined"},
      {head + "%1 \"y\" = copy(%1) : f32[T,8]", "%1 is not defined"},
      {head + "%1 \"y\" = copy(%0, %0) : f32[T,8]", "found 2 operands, expected 1"},
      {head + "%1 \"y\" = copy(_) : f32[T,8]", "operand x is missing"},
      {head + "%1 = copy(%0) : f32[T,8]", "a result of copy has no name"},
      {head + "%1 \"y\" = copy(%0) : f32[T,4]", "is f32[T,4], expected f32[T,8]"},
      {head + "%1 \"y\", %2 \"z\" = copy(%0) : f32[T,8], f32[T,8]", "found 2 results, expected 1"},
      {head + "%1 \"y\" = softcap(%0) : f32[T,8]", "expected '{'"},
      {head + "%1 \"y\" = softcap(%0) {cup=3} : f32[T,8]", "expected attribute 'cap'"},
      {head + "%1 \"y\" = softcap(%0) {cap=x} : f32[T,8]", "expected a number"},
      {head + "%1 \"y\" = softcap(%0) {cap=3, cap=3} : f32[T,8]", "expected '}'"},
      {head + "%1 \"y\" = unary(%0) {fn=add} : f32[T,8]", "'add' is not a value of rl_unary"},
      {head + "%1 \"y\" = topk(%0) {k=9999999999999999999} : f32[T,8]", "is out of range"},
      {head + "%1 \"y\" = copy(%0) on -3 : f32[T,8]", "is placed on device -3"},
      {head + "rows %0", "the wanted rows are not an input of type i32[R]"},
      {head + "rows %0 rows %0", "declared twice"},
      {head + "output \"y\" = %0 some", "expected 'wanted' or 'all'"},
      {head + "output \"y\" = %0 all", "which no op computes"},
      {head + "%1 \"y\" = state_append(_, %0, %0, %0) : f32[2,8]",
       "does not name its first version"},
  };
  for (const BadText& bad : cases) {
    SCOPED_TRACE(bad.text);
    const auto graph = ParseText(bad.text);
    ASSERT_FALSE(graph);
    EXPECT_THAT(graph.error().message, HasSubstr(bad.fragment));
  }
}

TEST(TextTest, EveryPrefixIsAnsweredWithoutACrash) {
  const std::string text = PrintText(SampleGraph());
  size_t refused = 0;
  for (size_t size = 0; size < text.size(); ++size)
    refused += ParseText(text.substr(0, size)) ? 0 : 1;
  EXPECT_GT(refused, text.size() / 2);
}

TEST(TextTest, DotNamesEveryOpAndOutput) {
  const std::string dot = PrintDot(SampleGraph());
  EXPECT_THAT(dot, HasSubstr("digraph \"sample \\\"1\\\"\" {"));
  EXPECT_THAT(dot, HasSubstr("label=\"tokens : i32[T]\""));
  EXPECT_THAT(dot, HasSubstr("label=\"matmul -> h : f32[T,512]\""));
  EXPECT_THAT(dot, HasSubstr("op2 -> op3 [label="));
  EXPECT_THAT(dot, HasSubstr("op4 -> out1;"));
  EXPECT_TRUE(dot.ends_with("}\n"));
}

// Two blocks that read the same input, and an op that reads it twice.
Graph TwoBlocks() {
  auto graph = ParseText(R"(graph "blocks" T<=8 R<=8
%0 = input "x" : f32[T,4]
%1 "blk.0.sum" = binary(%0, %0) {fn=add} : f32[T,4]
%2 "blk.1.half" = affine(%1) {scale=0.5, bias=0} : f32[T,4]
%3 "blk.1.sum" = binary(%2, %0) {fn=add} : f32[T,4]
%4 "last" = affine(%3) {scale=2, bias=0} : f32[T,4]
output "y" = %4 all
)");
  EXPECT_TRUE(graph) << graph.error().ToString();
  return *std::move(graph);
}

TEST(DotTest, BlocksAreClustersWithInputsOfTheirOwn) {
  const std::string dot = PrintDot(TwoBlocks());
  const size_t first = dot.find("subgraph cluster_0 {");
  const size_t second = dot.find("subgraph cluster_1 {");
  ASSERT_NE(first, std::string::npos);
  ASSERT_NE(second, std::string::npos);
  EXPECT_GT(dot.find("v0_0 ["), first);
  EXPECT_LT(dot.find("v0_0 ["), second);
  EXPECT_GT(dot.find("v0_1 ["), second);
  EXPECT_EQ(dot.find("v0 ["), std::string::npos);  // no copy that nobody reads
  EXPECT_THAT(dot, HasSubstr("op2 -> op3;"));
}

TEST(DotTest, ParallelEdgesNameTheirOperands) {
  const std::string dot = PrintDot(TwoBlocks());
  EXPECT_THAT(dot, HasSubstr("v0_0 -> op0 [label=\"a\"];"));
  EXPECT_THAT(dot, HasSubstr("v0_0 -> op0 [label=\"b\"];"));
  EXPECT_THAT(dot, HasSubstr("v0_1 -> op2;"));
}

TEST(DotTest, SomeBlocksAlone) {
  const std::string dot = PrintDot(TwoBlocks(), BlockRange{1, 1});
  EXPECT_EQ(dot.find("cluster_0"), std::string::npos);
  EXPECT_THAT(dot, HasSubstr("v1 [label=\"blk.0.sum : f32[T,4]\", style=dashed]"));
  EXPECT_THAT(dot, HasSubstr("v1 -> op1;"));
  EXPECT_EQ(dot.find("op3"), std::string::npos);
  EXPECT_EQ(dot.find("out0"), std::string::npos);
}

}  // namespace
}  // namespace rullama
