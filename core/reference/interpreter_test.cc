#include "core/reference/interpreter.h"

#include <rullama/sdk/half.h>

#include "core/ir/builder.h"
#include "core/reference/eval_test_util.h"

namespace rullama::reference {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Dim kT = Dim::T();

// A graph that gathers rows of a table, appends them to a state, doubles them and selects the
// wanted rows.
Graph SmallGraph(DType state_dtype = DType::kF32) {
  GraphBuilder b("small");
  const ValueId tokens = b.Input("tokens", {DType::kI32, {kT}});
  const ValueId pos = b.Input("pos", {DType::kI32, {kT}});
  const ValueId slot = b.Input("slot", {DType::kI32, {kT}});
  const ValueId rows = b.Input("rows", {DType::kI32, {Dim::R()}});
  const ValueId table = b.Constant("table", {DType::kF32, {3, 2}}, 1);
  const ValueId state = b.State("cache", {state_dtype, {1, 4, 2}});
  const ValueId x = b.Add(ops::GatherRows{.table = table, .ids = tokens}, "x");
  const ValueId twice = b.Add(ops::Affine{.x = x, .scale = 2, .bias = 0}, "twice");
  b.Add(ops::StateAppend{.state = state,
                         .rows = b.Add(ops::Cast{.x = x, .dtype = state_dtype}, "stored"),
                         .pos = pos,
                         .slot = slot},
        "cache.next");
  b.WantedRows(rows);
  b.Output("y", b.Add(ops::GatherRows{.table = twice, .ids = rows}, "picked"));
  Graph graph = *std::move(b).Finish();
  graph.max_t = 4;
  graph.max_r = 4;
  return graph;
}

Result<Tensor> Table(std::string_view source, int64_t first_row, const TensorType& type) {
  EXPECT_EQ(source, "table");
  EXPECT_EQ(first_row, 1);
  EXPECT_EQ(ToString(type), "f32[3,2]");
  return F32({3, 2}, {0.1, 1, 10, 11, 20, 21});
}

Interpreter Make(Graph graph, InterpreterOptions options = {}) {
  return *Interpreter::Create(std::move(graph), Table, std::move(options));
}

void BindAll(Interpreter& interpreter, const std::vector<int32_t>& tokens, int32_t first_pos,
             const std::vector<int32_t>& rows) {
  const auto t = static_cast<int64_t>(tokens.size());
  std::vector<int32_t> pos;
  for (size_t i = 0; i < tokens.size(); ++i) pos.push_back(first_pos + static_cast<int32_t>(i));
  EXPECT_TRUE(interpreter.Bind("tokens", I32({t}, tokens)));
  EXPECT_TRUE(interpreter.Bind("pos", I32({t}, pos)));
  EXPECT_TRUE(interpreter.Bind("slot", I32({t}, std::vector<int32_t>(tokens.size(), 0))));
  EXPECT_TRUE(interpreter.Bind("rows", I32({static_cast<int64_t>(rows.size())}, rows)));
}

TEST(InterpreterTest, RunsStepsAndKeepsStates) {
  Interpreter interpreter = Make(SmallGraph());
  BindAll(interpreter, {2, 0}, 0, {1});
  ASSERT_TRUE(interpreter.Run({.t = 2, .r = 1}));
  ExpectValues(*interpreter.GetOutput("y"), {0.2, 2});
  ExpectValues(*interpreter.Get("x"), {20, 21, 0.1, 1});
  BindAll(interpreter, {1, 1, 2}, 2, {});
  ASSERT_TRUE(interpreter.Run({.t = 3, .r = 0}));
  EXPECT_THAT(interpreter.GetOutput("y")->dims, ElementsAre(0, 2));
  // Position 4 took the ring row of position 0; an f32 state rounds to float.
  ExpectValues(*interpreter.ReadState("cache"), {20, 21, 0.1F, 1, 10, 11, 10, 11});
  EXPECT_EQ(interpreter.Get("cache.next"), interpreter.Get("cache"));
  EXPECT_EQ(interpreter.Get("nothing"), nullptr);
  EXPECT_EQ(interpreter.GetOutput("nothing"), nullptr);
}

TEST(InterpreterTest, StatesCanBeSetAndLiveInForeignMemory) {
  Interpreter interpreter = Make(SmallGraph(DType::kF16));
  std::vector<uint16_t> memory(8, FloatToHalf(3));
  const ValueId state = interpreter.graph().Find("cache");
  ASSERT_TRUE(interpreter.BindStateMemory(state, std::as_writable_bytes(std::span(memory))));
  BindAll(interpreter, {2}, 1, {});
  ASSERT_TRUE(interpreter.Run({.t = 1, .r = 0}));
  EXPECT_EQ(memory[2], FloatToHalf(20));
  EXPECT_EQ(memory[3], FloatToHalf(21));
  ExpectValues(*interpreter.ReadState("cache"), {3, 3, 20, 21, 3, 3, 3, 3});
  Tensor zeros = MakeZeros(DType::kF16, {1, 4, 2});
  zeros.f[0] = 1 + 0x1p-12;
  ASSERT_TRUE(interpreter.WriteState("cache", zeros));
  EXPECT_EQ(memory[0], FloatToHalf(1));
  EXPECT_EQ(memory[3], 0);

  Interpreter own = Make(SmallGraph(DType::kF16));
  ASSERT_TRUE(own.WriteState("cache", zeros));
  ExpectValues(*own.ReadState("cache"), {1, 0, 0, 0, 0, 0, 0, 0});
}

TEST(InterpreterTest, ValuesCanBeDroppedAfterTheirLastUse) {
  Interpreter interpreter = Make(SmallGraph(), {.keep_all = false, .cancelled = {}});
  BindAll(interpreter, {2, 0}, 0, {0});
  ASSERT_TRUE(interpreter.Run({.t = 2, .r = 1}));
  EXPECT_EQ(interpreter.Get("x"), nullptr);
  EXPECT_EQ(interpreter.Get("twice"), nullptr);
  ExpectValues(*interpreter.GetOutput("y"), {40, 42});
}

TEST(InterpreterTest, InputsHaveToFit) {
  Interpreter interpreter = Make(SmallGraph());
  const auto run_error = [&](const Extents& extents) {
    const Status status = interpreter.Run(extents);
    return status ? std::string("no error") : status.error().ToString();
  };
  EXPECT_THAT(run_error({1, 1}), HasSubstr("input 'tokens' is not bound [ref.input]"));
  BindAll(interpreter, {2, 0}, 0, {0});
  EXPECT_THAT(run_error({1, 1}), HasSubstr("'tokens' is i32[2], expected i32[T] at T = 1, R = 1"));
  EXPECT_THAT(run_error({5, 1}), HasSubstr("T = 5 and R = 1 are outside 1 to 4"));
  EXPECT_THAT(run_error({0, 0}), HasSubstr("[ref.extents]"));
  const Status unknown = interpreter.Bind("nothing", I32({1}, {0}));
  EXPECT_THAT(unknown.error().message, HasSubstr("has no input 'nothing'"));
  const Status table = interpreter.Bind("table", I32({1}, {0}));
  EXPECT_THAT(table.error().message, HasSubstr("has no input 'table'"));
  const Status dtype = interpreter.Bind("tokens", F32({1}, {0}));
  EXPECT_THAT(dtype.error().message, HasSubstr("input 'tokens' is f32, expected i32"));
}

TEST(InterpreterTest, ConstantsAndStatesHaveToFit) {
  const auto wrong =
      Interpreter::Create(SmallGraph(), [](auto, auto, const auto&) -> Result<Tensor> {
        return F32({2, 2}, {1, 2, 3, 4});
      });
  ASSERT_FALSE(wrong);
  EXPECT_THAT(wrong.error().ToString(), HasSubstr("'table@1' is f32[2,2], expected f32[3,2]"));
  const auto missing =
      Interpreter::Create(SmallGraph(), [](auto, auto, const auto&) -> Result<Tensor> {
        return MakeError(ErrorKind::kModelFile, "test.missing", "no such tensor");
      });
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().id, "test.missing");
  Graph broken = SmallGraph();
  broken.max_t = 0;
  EXPECT_EQ(Interpreter::Create(broken, Table).error().id, "ir.structure");

  Interpreter interpreter = Make(SmallGraph());
  EXPECT_EQ(interpreter.ReadState("x").error().id, "ref.state");
  EXPECT_EQ(interpreter.WriteState("cache", F32({1}, {0})).error().id, "ref.state");
  EXPECT_EQ(interpreter.BindStateMemory(0, {}).error().id, "ref.state");
  const ValueId state = interpreter.graph().Find("cache");
  EXPECT_EQ(interpreter.BindStateMemory(state, {}).error().id, "ref.state");
}

TEST(InterpreterTest, ErrorsNameTheOp) {
  Interpreter interpreter = Make(SmallGraph());
  BindAll(interpreter, {1}, 0, {3});
  OpIndex failed = 0;
  const Status status = interpreter.Run({.t = 1, .r = 1}, &failed);
  ASSERT_FALSE(status);
  EXPECT_EQ(failed, 4u);
  EXPECT_THAT(status.error().message, HasSubstr("op 4 -> 'picked': gather_rows: id 3 of row 0"));
}

TEST(InterpreterTest, CanBeCancelledBetweenOps) {
  int polls = 0;
  Interpreter interpreter =
      Make(SmallGraph(), {.keep_all = true, .cancelled = [&] { return ++polls == 3; }});
  BindAll(interpreter, {1}, 0, {0});
  const Status status = interpreter.Run({.t = 1, .r = 1});
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().id, "run.cancelled");
  EXPECT_NE(interpreter.Get("twice"), nullptr);
  EXPECT_EQ(interpreter.GetOutput("y"), nullptr);
}

}  // namespace
}  // namespace rullama::reference
