#include <rullama/sdk/half.h>

#include <cstring>

#include "core/reference/eval_test_util.h"

namespace rullama::reference {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

double Gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * std::pow(x, 3))));
}

TEST(MatMulTest, BothTransposes) {
  const Tensor x = F32({2, 2}, {1, 2, 3, 4});
  const Tensor w = F32({3, 2}, {1, 0, 0, 1, 1, -1});
  const Tensor y = Eval(OpKind::kMatMul, OpAttrs(rl_matmul_attrs{0, 1}), {x, w});
  EXPECT_THAT(y.dims, ElementsAre(2, 3));
  ExpectValues(y, {1, 2, -1, 3, 4, -1});
  const Tensor v = F32({2, 3}, {1, 0, 2, 0, 1, -1});
  ExpectValues(Eval(OpKind::kMatMul, OpAttrs(rl_matmul_attrs{0, 0}), {x, v}), {1, 2, 0, 3, 4, 2});
}

TEST(MatMulTest, PackedWeightsAreDecoded) {
  // Two rows of one q8_0 block: 2 * (0..31) and -0.5 * (0..31).
  std::vector<std::byte> bytes(2 * 34);
  const double scales[] = {2, -0.5};
  for (size_t row = 0; row < 2; ++row) {
    const uint16_t scale = FloatToHalf(static_cast<float>(scales[row]));
    std::memcpy(bytes.data() + row * 34, &scale, sizeof(scale));
    for (size_t j = 0; j < 32; ++j) bytes[row * 34 + 2 + j] = static_cast<std::byte>(j);
  }
  const Tensor w{.dtype = DType::kQ8_0, .dims = {2, 32}, .f = {}, .i = {}, .packed = bytes};
  const Tensor x = F32({1, 32}, std::vector<double>(32, 1.0));
  ExpectValues(Eval(OpKind::kMatMul, OpAttrs(rl_matmul_attrs{0, 1}), {x, w}),
               {2 * 496, -0.5 * 496});
  std::vector<double> expected;
  for (int j = 0; j < 32; ++j) expected.push_back(3 * 2.0 * j + 5 * -0.5 * j);
  ExpectValues(Eval(OpKind::kMatMul, OpAttrs(rl_matmul_attrs{0, 0}), {F32({1, 2}, {3, 5}), w}),
               expected);
}

TEST(MatMulTest, WeightsThatCannotBeDecodedAreNamed) {
  const std::vector<std::byte> bytes(36);
  const Tensor w{.dtype = DType::kQ1_0, .dims = {1, 256}, .f = {}, .i = {}, .packed = bytes};
  EXPECT_THAT(EvalError(OpKind::kMatMul, OpAttrs(rl_matmul_attrs{0, 1}),
                        {F32({1, 256}, std::vector<double>(256)), w}),
              HasSubstr("q1_0"));
}

TEST(MatMulTest, AdaptedLinear) {
  const Tensor x = F32({1, 2}, {1, 2});
  const Tensor weight = F32({2, 2}, {1, 0, 0, 1});
  const Tensor a = F32({1, 2}, {3, 4});
  const Tensor b = F32({2, 1}, {10, -1});
  // x a^T is 11.
  ExpectValues(Eval(OpKind::kAdaptedLinear, OpAttrs(OpKind::kAdaptedLinear), {x, weight, a, b}),
               {111, -9});
}

TEST(MatMulTest, AdaptedGeGluLinear) {
  const Tensor x = F32({1, 2}, {1, 2});
  const Tensor none = F32({1, 2}, {0, 0});
  const Tensor a = F32({1, 2}, {3, 4});
  const Tensor gate_b = F32({1, 1}, {10}), up_b = F32({1, 1}, {-1});
  ExpectValues(Eval(OpKind::kAdaptedGeGluLinear, OpAttrs(OpKind::kAdaptedGeGluLinear),
                    {x, none, a, gate_b, none, a, up_b}),
               {Gelu(110) * -11});
}

TEST(MatMulTest, RowsHaveAdaptersOfTheirOwn) {
  const Tensor x = F32({2, 2}, {1, 2, 3, 4});
  const Tensor weight = F32({1, 2}, {1, 0});
  const Tensor a = F32({2, 1, 2}, {1, 1, 0, 10});
  const Tensor b = F32({2, 1, 1}, {2, 3});
  const Tensor ids = Tensor::I32({2, 2}, {1, 0, 0, 0});
  const Tensor factors = F32({2, 2}, {1, 0.5, -1, 0});
  // Row 0 has 3 * 20 of adapter 1 and half of 2 * 3 of adapter 0; row 1 has -2 * 7.
  ExpectValues(Eval(OpKind::kRowAdaptedLinear, OpAttrs(OpKind::kRowAdaptedLinear),
                    {x, weight, a, b, ids, factors}),
               {1 + 60 + 3, 3 - 14});
  ExpectValues(Eval(OpKind::kAdapterSum, OpAttrs(OpKind::kAdapterSum),
                    {x, F32({2, 1}, {100, 200}), a, b, ids, factors}),
               {100 + 60 + 3, 200 - 14});
  ExpectValues(Eval(OpKind::kRowAdaptedGeGluLinear, OpAttrs(OpKind::kRowAdaptedGeGluLinear),
                    {x, weight, a, b, weight, a, b, ids, factors}),
               {Gelu(64) * 64, Gelu(-11) * -11});
}

TEST(MatMulTest, GeGluLinear) {
  const Tensor x = F32({1, 2}, {1, 2});
  const Tensor gate = F32({2, 2}, {1, 0, 0, -1});
  const Tensor up = F32({2, 2}, {0, 3, 1, 1});
  ExpectValues(Eval(OpKind::kGeGluLinear, OpAttrs(OpKind::kGeGluLinear), {x, gate, up}),
               {Gelu(1) * 6, Gelu(-2) * 3});
}

TEST(MatMulTest, RmsNorm) {
  const Tensor x = F32({1, 2, 2}, {3, 4, 0, 0});
  const double root = std::sqrt(12.5);
  ExpectValues(Eval(OpKind::kRmsNorm, OpAttrs(rl_rms_norm_attrs{0, 0.0F}),
                    {F32({1, 2}, {3, 4}), F32({2}, {1, -2})}),
               {3 / root, -8 / root});
  const double eps = 0.25F;
  ExpectValues(Eval(OpKind::kRmsNorm, OpAttrs(rl_rms_norm_attrs{0, 0.25F}), {x, std::nullopt}),
               {3 / std::sqrt(12.5 + eps), 4 / std::sqrt(12.5 + eps), 0, 0});
}

TEST(MatMulTest, ResidualNorm) {
  const double root = std::sqrt(12.5);
  const Operands operands = {F32({1, 2}, {10, 20}), F32({1, 2}, {3, 4}), F32({2}, {1, 2}),
                             F32({1}, {0.5})};
  ExpectValues(Eval(OpKind::kResidualNorm, OpAttrs(rl_residual_norm_attrs{0, 0.0F}), operands),
               {0.5 * (10 + 3 / root), 0.5 * (20 + 8 / root)});
  Operands unscaled = operands;
  unscaled[3] = std::nullopt;
  ExpectValues(Eval(OpKind::kResidualNorm, OpAttrs(rl_residual_norm_attrs{0, 0.0F}), unscaled),
               {10 + 3 / root, 20 + 8 / root});
}

TEST(MatMulTest, PleInject) {
  // d = 2, p = 1: gate = gelu(x . (1, 1)) * ple, injected = gate * (3, 4).
  const Tensor x = F32({2, 2}, {0.5, 0.25, -1, 2});
  const Tensor ple = F32({2, 1}, {2, -1});
  const Operands operands = {
      x, ple, F32({1, 2}, {1, 1}), F32({2, 1}, {3, 4}), F32({2}, {1, 10}), F32({1}, {2})};
  std::vector<double> expected;
  for (size_t row = 0; row < 2; ++row) {
    const double gate = Gelu(x.f[2 * row] + x.f[2 * row + 1]) * ple.f[row];
    const double root = std::sqrt(12.5 * gate * gate + double{1e-3F});
    expected.push_back(2 * (x.f[2 * row] + 3 * gate / root));
    expected.push_back(2 * (x.f[2 * row + 1] + 10 * 4 * gate / root));
  }
  ExpectValues(Eval(OpKind::kPleInject, OpAttrs(rl_ple_inject_attrs{0, 1e-3F}), operands),
               expected);
}

}  // namespace
}  // namespace rullama::reference
