#include "core/passes/wanted_rows.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <ostream>
#include <string>

#include "core/base/must_test_util.h"
#include "core/ir/builder.h"
#include "core/ir/text.h"
#include "core/passes/pipeline.h"

namespace rullama {
namespace {

// The graph of testdata/wanted_rows.txt, before the pass.
std::string Before() {
  const std::string path = RULLAMA_SOURCE_DIR "/core/passes/testdata/wanted_rows.txt";
  std::ifstream file(path);
  EXPECT_TRUE(file) << path << " cannot be read";
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return text.substr(0, text.find("----\n"));
}

struct Change {
  const char* name;
  const char* from;
  const char* to;
};

void PrintTo(const Change& change, std::ostream* out) { *out << change.name; }

class StaysAsItIs : public testing::TestWithParam<Change> {};

TEST_P(StaysAsItIs, Graph) {
  std::string text = Before();
  const size_t at = text.find(GetParam().from);
  ASSERT_NE(at, std::string::npos);
  text.replace(at, std::string(GetParam().from).size(), GetParam().to);
  const Graph before = Must(ParseText(text));
  EXPECT_EQ(PrintText(Must(DecodeWantedRows(before))), PrintText(before));
}

constexpr const char* kAttrs = "{mask=causal, window=0, scale=1}";
constexpr const char* kAppend =
    "%23 \"k_cache.next\" = state_append(%8, %12, %1, %2) : f32[1,16,1,4]\n"
    "%24 \"v_cache.next\" = state_append(%9, %14, %1, %2) : f32[1,16,1,4]\n";

INSTANTIATE_TEST_SUITE_P(
    DecodeWantedRows, StaysAsItIs,
    testing::Values(Change{"LongerWindowThanTheCache", kAttrs, "{mask=causal, window=17, scale=1}"},
                    Change{"Canvas", kAttrs, "{mask=canvas, window=0, scale=1}"},
                    Change{"NothingAppended", kAppend, ""},
                    Change{"OtherRowsAppended", "state_append(%8, %12,", "state_append(%8, %14,"},
                    Change{"AppendedElsewhere", "state_append(%8, %12, %1, %2)",
                           "state_append(%8, %12, %2, %2)"}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(DecodeWantedRows, TakesACacheAsLongAsTheWindow) {
  std::string text = Before();
  const std::string attrs(kAttrs);
  text.replace(text.find(attrs), attrs.size(), "{mask=causal, window=16, scale=1}");
  EXPECT_NE(Must(DecodeWantedRows(Must(ParseText(text)))).Find("past_of_wanted"), kNoValue);
}

// A state that gets what ops on wanted rows compute, and that none of them reads.
TEST(DecodeWantedRows, MayKeepWhatWantedRowsGive) {
  GraphBuilder b(Must(ParseText(Before())));
  const Graph& graph = b.graph();
  const Op* attention = nullptr;  // the last, which wanted rows alone need
  for (const Op& op : graph.ops) {
    if (op.kind == OpKind::kAttention) attention = &op;
  }
  ASSERT_NE(attention, nullptr);
  const ValueId rows = attention->results.front();
  const TensorType type = graph.type(rows);
  ASSERT_EQ(type.rows(), Dim::R());
  const ValueId place = b.Input("place", {DType::kI32, {Dim::R()}});
  b.Add(ops::StateAppend{.state = b.State("kept", {DType::kF32, {4, 1, type.dim(1), type.dim(2)}}),
                         .rows = rows,
                         .pos = place,
                         .slot = place},
        "kept.next");
  const Graph before = Must(std::move(b).Finish());
  const Graph after = Must(DecodeWantedRows(before));
  EXPECT_NE(after.Find("past_of_wanted"), kNoValue);
  EXPECT_EQ(after.ops.back().kind, OpKind::kStateAppend);
}

// A copy of the rows, followed by `count` ops that run on the wanted ones.
Graph WantedChain(int count) {
  GraphBuilder b("chain");
  const ValueId x = b.Input("x", {DType::kF32, {Dim::T(), 4}});
  b.WantedRows(b.Input(input_names::kRows, {DType::kI32, {Dim::R()}}));
  b.Output("all", b.Add(ops::Softcap{.x = x, .cap = 3}, "all"), RowDemand::kAll);
  ValueId y = x;
  for (int i = 0; i < count; ++i)
    y = b.Add(ops::Softcap{.x = y, .cap = 2}, "y" + std::to_string(i));
  b.Output("y", y);
  return Must(std::move(b).Finish());
}

Program ProgramOf(const Graph& graph, int64_t max_t, int64_t max_r, bool apart = true) {
  PipelineOptions options;
  options.bucket.max_t = max_t;
  options.bucket.max_r = max_r;
  options.wanted_rows_apart = apart;
  options.arenas = {{.alignment = 64}};
  const SupportQuery all = [](int, const Graph& asked) {
    return Result<std::vector<std::string>>(std::vector<std::string>(asked.ops.size()));
  };
  return Must(BuildProgram(graph, all, options));
}

TEST(WantedRowsApart, AreTheSecondSegmentOfAPrompt) {
  const Program program = ProgramOf(WantedChain(60), 64, 2);
  ASSERT_EQ(program.segments.size(), 2U);
  EXPECT_FALSE(program.segments[0].wanted_only);
  EXPECT_EQ(program.segments[0].graph.max_t, 64);
  EXPECT_TRUE(program.segments[1].wanted_only);
  EXPECT_EQ(program.segments[1].graph.max_t, 2);
  EXPECT_EQ(program.segments[1].graph.max_r, 2);
  EXPECT_EQ(program.segments[1].graph.ops.size(), 60U);
}

TEST(WantedRowsApart, NeedManyOpsManyRowsAndARequest) {
  EXPECT_EQ(ProgramOf(WantedChain(20), 64, 1).segments.size(), 1U);
  EXPECT_EQ(ProgramOf(WantedChain(60), 16, 1).segments.size(), 1U);
  EXPECT_EQ(ProgramOf(WantedChain(60), 64, 64).segments.size(), 1U);
  EXPECT_EQ(ProgramOf(WantedChain(60), 64, 0).segments.size(), 1U);
  EXPECT_EQ(ProgramOf(WantedChain(60), 64, 1, /*apart=*/false).segments.size(), 1U);
}

}  // namespace
}  // namespace rullama
