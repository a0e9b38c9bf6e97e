#include <gtest/gtest.h>
#include <rullama/sdk/backend.h>
#include <rullama/sdk/half.h>
#include <rullama/sdk/slots.h>

#include <vector>

namespace rullama::sdk {
namespace {

// An op or a value of a newer host, which is larger than ours.
template <typename T>
struct Larger {
  T known{};
  uint64_t more = 0xFFFFFFFFFFFFFFFF;
};

TEST(GraphView, WalksArraysOfLargerElements) {
  std::vector<Larger<rl_value>> values(3);
  std::vector<Larger<rl_op>> ops(2);
  for (size_t i = 0; i < values.size(); ++i) values[i].known.dtype = static_cast<uint32_t>(i);
  for (size_t i = 0; i < ops.size(); ++i) ops[i].known.kind = static_cast<uint32_t>(i) + 10;
  rl_graph graph{};
  graph.value_size = sizeof(values[0]);
  graph.op_size = sizeof(ops[0]);
  graph.value_count = 3;
  graph.op_count = 2;
  graph.values = &values[0].known;
  graph.ops = &ops[0].known;
  const GraphView view(graph);
  std::vector<uint32_t> dtypes, kinds;
  for (const rl_value& value : view.values()) dtypes.push_back(value.dtype);
  for (const rl_op& op : view.ops()) kinds.push_back(op.kind);
  EXPECT_EQ(dtypes, (std::vector<uint32_t>{0, 1, 2}));
  EXPECT_EQ(kinds, (std::vector<uint32_t>{10, 11}));
  EXPECT_EQ(view.ops().size(), 2U);
  EXPECT_EQ(view.op(1).kind, 11U);
}

// A rotation as a host of ABI 1.2 or of a later version describes it.
TEST(GraphView, ReadsAttributesOfOlderAndNewerHosts) {
  const Larger<rl_rope_attrs> newer{{sizeof(newer), 100.0F, 4, 1, 2}};
  rl_op op{};
  op.attrs = &newer;
  op.attrs_size = sizeof(newer);
  EXPECT_EQ(GraphView::attrs<rl_rope_attrs>(op).inverse, 1);
  EXPECT_EQ(GraphView::attrs<rl_rope_attrs>(op).first, 2);
  op.attrs_size = 16;
  EXPECT_EQ(GraphView::attrs<rl_rope_attrs>(op).inverse, 1);
  EXPECT_EQ(GraphView::attrs<rl_rope_attrs>(op).first, 0);
  op.attrs_size = 12;
  EXPECT_EQ(GraphView::attrs<rl_rope_attrs>(op).n_rot, 4);
  EXPECT_EQ(GraphView::attrs<rl_rope_attrs>(op).inverse, 0);
  op.attrs_size = 8;
  EXPECT_THROW((void)GraphView::attrs<rl_rope_attrs>(op), Error);
}

TEST(Slots, AreThoseOfTheCachesThatAttentionReads) {
  rl_value past{};
  past.rank = 1;
  past.dims[0].constant = 4;
  std::vector<uint32_t> operands(rullama::operands::Attention::kCount, 0);
  rl_op op{};
  op.kind = RL_OP_attention;
  op.inputs = operands.data();
  op.input_count = static_cast<uint32_t>(operands.size());
  rl_graph graph{};
  graph.value_size = sizeof(past);
  graph.op_size = sizeof(op);
  graph.value_count = 1;
  graph.values = &past;
  graph.ops = &op;
  EXPECT_EQ(SlotsOf(GraphView(graph)), 0);
  graph.op_count = 1;
  graph.max_t = 4;
  EXPECT_EQ(SlotsOf(GraphView(graph)), 4);
  EXPECT_TRUE(DecodesBatch(GraphView(graph)));
  graph.max_t = 5;
  EXPECT_FALSE(DecodesBatch(GraphView(graph)));
  past.dims[0].constant = graph.max_t = 1;
  EXPECT_FALSE(DecodesBatch(GraphView(graph)));
  graph.max_t = 8;
  graph.max_r = 1;
  EXPECT_FALSE(DecodesBatch(GraphView(graph)));
  graph.max_r = 8;  // each row is wanted: steps that check drafts
  EXPECT_TRUE(DecodesBatch(GraphView(graph)));
  graph.max_t = graph.max_r = 32;
  EXPECT_FALSE(DecodesBatch(GraphView(graph)));
}

TEST(ByteSize, CountsBlocksAtTheExtentsOfAStep) {
  rl_value value{};
  value.dtype = RL_DTYPE_Q8_0;
  value.rank = 2;
  value.dims[0].t = 1;
  value.dims[1].constant = 64;
  EXPECT_EQ(ByteSize(value, 3, 1), 3U * 2 * 34);
  value.dtype = 4711;
  EXPECT_EQ(ByteSize(value, 3, 1), 0U);
}

TEST(Names, AreFoundInBothNamespaces) {
  using namespace rullama;       // NOLINT: as plugins do
  using namespace rullama::sdk;  // NOLINT
  EXPECT_EQ(HalfToFloat(0x3C00), 1.0F);
  EXPECT_EQ(rullama::sdk::HalfToFloat(0x3C00), rullama::HalfToFloat(0x3C00));
}

}  // namespace
}  // namespace rullama::sdk
