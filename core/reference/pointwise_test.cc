#include "core/reference/eval_test_util.h"

namespace rullama::reference {
namespace {

using ::testing::ElementsAre;

Tensor Unary(rl_unary fn, std::vector<double> x) {
  const auto n = static_cast<int64_t>(x.size());
  return Eval(OpKind::kUnary, OpAttrs(rl_unary_attrs{0, fn}), {F32({n}, std::move(x))});
}

TEST(PointwiseTest, WhereTakesIntegersToo) {
  const Tensor y = Eval(OpKind::kWhere, OpAttrs(OpKind::kWhere),
                        {F32({3}, {0, 1, kNaN}), I32({3}, {1, 2, 3}), I32({3}, {4, 5, 6})});
  EXPECT_THAT(y.i, ::testing::ElementsAre(4, 2, 3));
}

TEST(PointwiseTest, UnaryFunctions) {
  ExpectValues(Unary(RL_UNARY_NEG, {1, -2, kInf}), {-1, 2, -kInf});
  ExpectValues(Unary(RL_UNARY_ABS, {1, -2, -kInf}), {1, 2, kInf});
  ExpectValues(Unary(RL_UNARY_EXP, {0, 1, -kInf}), {1, 2.718281828459045, 0});
  ExpectValues(Unary(RL_UNARY_LOG, {1, 0, -1, 7.38905609893065}), {0, -kInf, kNaN, 2});
  ExpectValues(Unary(RL_UNARY_SQRT, {9, -1}), {3, kNaN});
  ExpectValues(Unary(RL_UNARY_RSQRT, {16, 0}), {0.25, kInf});
  ExpectValues(Unary(RL_UNARY_TANH, {0.5, kInf}), {0.46211715726000973, 1});
  ExpectValues(Unary(RL_UNARY_SIGMOID, {0, 2, -kInf}), {0.5, 0.8807970779778823, 0});
  ExpectValues(Unary(RL_UNARY_SILU, {0, 2}), {0, 1.7615941559557646});
  ExpectValues(Unary(RL_UNARY_SQUARE, {-3, kInf}), {9, kInf});
  // 0.5 (1 + tanh(0.7978845608028654 * 1.044715)), and the same with 2 and 2.35772.
  ExpectValues(Unary(RL_UNARY_GELU_TANH, {0, 1, -1, 2, -kInf, kInf}),
               {0, 0.8411919906082768, -0.15880800939172324, 1.954597694087775, 0, kInf});
}

Tensor Binary(rl_binary fn, const Tensor& a, const Tensor& b) {
  return Eval(OpKind::kBinary, OpAttrs(rl_binary_attrs{0, fn}), {a, b});
}

TEST(PointwiseTest, BinaryFunctions) {
  const Tensor a = F32({4}, {1, -2, 3, kNaN});
  const Tensor b = F32({4}, {2, -2, -1, 1});
  ExpectValues(Binary(RL_BINARY_ADD, a, b), {3, -4, 2, kNaN});
  ExpectValues(Binary(RL_BINARY_SUB, a, b), {-1, 0, 4, kNaN});
  ExpectValues(Binary(RL_BINARY_MUL, a, b), {2, 4, -3, kNaN});
  ExpectValues(Binary(RL_BINARY_DIV, a, b), {0.5, 1, -3, kNaN});
  ExpectValues(Binary(RL_BINARY_MIN, a, b), {1, -2, -1, kNaN});
  ExpectValues(Binary(RL_BINARY_MAX, a, b), {2, -2, 3, kNaN});
  ExpectValues(Binary(RL_BINARY_LT, a, b), {1, 0, 0, 0});
  ExpectValues(Binary(RL_BINARY_LE, a, b), {1, 1, 0, 0});
  ExpectValues(Binary(RL_BINARY_EQ, a, b), {0, 1, 0, 0});
}

TEST(PointwiseTest, BinaryBroadcastsInnerDimensions) {
  const Tensor a = F32({2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  ExpectValues(Binary(RL_BINARY_ADD, a, F32({2, 1, 2}, {10, 20, 30, 40})),
               {11, 22, 13, 24, 35, 46, 37, 48});
  ExpectValues(Binary(RL_BINARY_ADD, a, F32({2, 2, 1}, {10, 20, 30, 40})),
               {11, 12, 23, 24, 35, 36, 47, 48});
  ExpectValues(Binary(RL_BINARY_MUL, a, F32({2, 1, 1}, {1, -1})), {1, 2, 3, 4, -5, -6, -7, -8});
}

TEST(PointwiseTest, ScaleAffineSelect) {
  const Tensor x = F32({2, 2}, {1, 2, 3, 4});
  ExpectValues(Eval(OpKind::kScale, OpAttrs(OpKind::kScale), {x, F32({2}, {10, 100})}),
               {10, 200, 30, 400});
  ExpectValues(Eval(OpKind::kScale, OpAttrs(OpKind::kScale), {x, F32({1}, {-1})}),
               {-1, -2, -3, -4});
  ExpectValues(Eval(OpKind::kAffine, OpAttrs(rl_affine_attrs{0, 2, 0.5F}), {x}),
               {2.5, 4.5, 6.5, 8.5});
  ExpectValues(Eval(OpKind::kSelect, OpAttrs(rl_select_attrs{0, -INFINITY}),
                    {F32({2, 2}, {1, 0, -1, kNaN}), x}),
               {1, -kInf, 3, 4});
}

TEST(PointwiseTest, SoftcapAndGeGlu) {
  ExpectValues(
      Eval(OpKind::kSoftcap, OpAttrs(rl_softcap_attrs{0, 30}), {F32({4}, {0, 30, -kInf, kInf})}),
      {0, 22.847824678672947, -30, 30});
  ExpectValues(
      Eval(OpKind::kGeGlu, OpAttrs(OpKind::kGeGlu), {F32({1, 2}, {1, -1}), F32({1, 2}, {10, 100})}),
      {8.411919906082768, -15.880800939172324});
}

TEST(PointwiseTest, StepsOfNoRowsGiveNoRows) {
  const Tensor y = Eval(OpKind::kAffine, OpAttrs(rl_affine_attrs{0, 2, 0}), {F32({0, 4}, {})});
  EXPECT_THAT(y.dims, ElementsAre(0, 4));
  EXPECT_TRUE(y.f.empty());
}

}  // namespace
}  // namespace rullama::reference
