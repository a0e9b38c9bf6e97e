// The shaders of this plugin for VK_KHR_cooperative_matrix.
#include <gtest/gtest.h>

#include <span>
#include <string>
#include <vector>

#include "backends/gpu/kernels.h"
#include "backends/gpu/product_tiles.h"
#include "backends/vulkan/join.h"
#include "backends/vulkan/khr_checks_test_util.h"

// Written at build time: the code of each shader.
#include "spirv.h"

namespace rullama::vulkan {
namespace {

namespace kernels = gpu::kernels;

struct Shader {
  std::string name;
  std::span<const uint32_t> code;
  std::vector<uint32_t> constants;
};
void PrintTo(const Shader& shader, std::ostream* out) { *out << shader.name; }

// Both forms that a dispatch may have.
template <typename Kernel>
void Add(std::vector<Shader>& to, const std::string& name, std::span<const uint32_t> plain,
         std::span<const uint32_t> subgroups, const Kernel& kernel) {
  to.push_back({name + "Plain", plain, ConstantsOf(kernel)});
  to.push_back({name + "Subgroups", subgroups, ConstantsOf(kernel)});
}

void AddProducts(std::vector<Shader>& all) {
  kernels::MatMulCoop product{.threads = 128,
                              .type = RL_DTYPE_Q4_K,
                              .glu = 0,
                              .mode = gpu::ProductMode::kDense,
                              .tile = 64,
                              .columns = 64,
                              .subgroup_rows = 32,
                              .subgroup_columns = 32,
                              .parts = 1,
                              .adapted = 0};
  Add(all, "Product", kMatMulCoopPlain, kMatMulCoopSubgroups, product);
  product.glu = product.adapted = 1;
  Add(all, "AdaptedProduct", kMatMulCoopPlain, kMatMulCoopSubgroups, product);
  product.adapted = 0;
  product.mode = gpu::ProductMode::kPairs;
  product.parts = 2;
  Add(all, "GatedProductOfExperts", kMatMulCoopPlain, kMatMulCoopSubgroups, product);
  const gpu::CoopTile tile = gpu::ExpertTileOf(1, 1024);
  product.threads = tile.threads();
  product.tile = tile.rows;
  product.columns = tile.columns;
  product.subgroup_rows = tile.subgroup_rows;
  product.subgroup_columns = tile.subgroup_columns;
  Add(all, "GatedProductOfExpertsWithFewRows", kMatMulCoopPlain, kMatMulCoopSubgroups, product);
  Add(all, "StoredProduct", kMatMulStoredCoopPlain, kMatMulStoredCoopSubgroups,
      kernels::MatMulStoredCoop{.threads = 256, .type = RL_DTYPE_Q6_K});
}

void AddAttention(std::vector<Shader>& all) {
  kernels::AttentionCoop attention{.threads = 256,
                                   .heads = 8,
                                   .kv_heads = 2,
                                   .group = 4,
                                   .queries = 32,
                                   .dim = 256,
                                   .slots = 2,
                                   .capacity = 512,
                                   .window = 0,
                                   .canvas = 0,
                                   .scale = 1.0F,
                                   .max_fresh = 64,
                                   .parts = 1,
                                   .stats = 0};
  Add(all, "Attention", kAttentionCoopPlain, kAttentionCoopSubgroups, attention);
  attention.parts = 2;
  Add(all, "AttentionInParts", kAttentionCoopPlain, kAttentionCoopSubgroups, attention);
  attention.stats = 1;
  Add(all, "AttentionStats", kAttentionCoopPlain, kAttentionCoopSubgroups, attention);
  kernels::AttentionHalfCoop half{.threads = 256,
                                  .heads = 8,
                                  .kv_heads = 2,
                                  .group = 4,
                                  .queries = 64,
                                  .dim = 256,
                                  .slots = 2,
                                  .capacity = 512,
                                  .window = 0,
                                  .canvas = 0,
                                  .scale = 1.0F,
                                  .key_type = DType::kF16,
                                  .value_type = DType::kF16,
                                  .units = 0};
  Add(all, "HalfAttention", kAttentionHalfCoopPlain, kAttentionHalfCoopSubgroups, half);
  half.units = 1;
  Add(all, "HalfAttentionInUnits", kAttentionHalfCoopPlain, kAttentionHalfCoopSubgroups, half);
  half.queries = 32;
  half.dim = 512;
  Add(all, "HalfAttentionOfLongHeads", kAttentionHalfCoopPlain, kAttentionHalfCoopSubgroups, half);
  kernels::AttentionFreshCoop fresh{
      .threads = 128, .heads = 8, .kv_heads = 8, .dim = 72, .slots = 1, .scale = 1.0F, .parts = 1};
  Add(all, "FreshAttention", kAttentionFreshCoopPlain, kAttentionFreshCoopSubgroups, fresh);
  fresh.parts = 2;
  Add(all, "FreshAttentionInParts", kAttentionFreshCoopPlain, kAttentionFreshCoopSubgroups, fresh);
}

std::vector<Shader> Shaders() {
  std::vector<Shader> all;
  AddProducts(all);
  AddAttention(all);
  return all;
}

class ShaderOfKhr : public ::testing::TestWithParam<Shader> {};

TEST_P(ShaderOfKhr, IsTheSameWithAUseForEachMatrix) {
  const Spirv nv = WithConstants(GetParam().code, GetParam().constants);
  const std::optional<Spirv> khr = WithKhrMatrices(nv);
  ASSERT_TRUE(khr.has_value());
  CheckKhr(nv, *khr);
}

INSTANTIATE_TEST_SUITE_P(All, ShaderOfKhr, ::testing::ValuesIn(Shaders()),
                         [](const auto& test) { return test.param.name; });

TEST(WithKhrMatrices, LeavesShadersWithoutMatrices) {
  const uint32_t threads = 64;
  EXPECT_FALSE(WithKhrMatrices(WithConstants(kScanPlain, {&threads, 1})).has_value());
}

}  // namespace
}  // namespace rullama::vulkan
