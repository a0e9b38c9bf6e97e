// Every kernel that lowering asks for is compiled ahead.
#include "backends/cuda/forms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rullama/sdk/dtype.h>

#include <algorithm>
#include <set>
#include <variant>
#include <vector>

#include "backends/cuda/target.h"
#include "backends/gpu/kernel_source.h"
#include "backends/gpu/product_plan.h"
#include "backends/gpu/weights.h"

namespace rullama::cuda {
namespace {

using gpu::ProductMode;
using gpu::Shader;

bool Exists(const gpu::PipelineKey& key) { return FindForm(key) < AllForms().size(); }

gpu::Target TargetOfH200(const DriverOptions& options, uint32_t most_shared_memory = 232448) {
  Facts facts;
  facts.capability = 90;
  facts.has_warpgroups = true;
  facts.multiprocessors = 132;
  facts.shared_memory = 49152;
  facts.most_shared_memory = most_shared_memory;
  return TargetFor(facts, options);
}

std::vector<DType> MatrixTypes() {
  std::vector<DType> types;
  for (const DTypeInfo& info : kDTypes) {
    if (HasFormsFor(info.dtype)) types.push_back(info.dtype);
  }
  return types;
}

// The kernel of a plan, as ops_matmul.cc has it. `glu`: 2 has another product as an operand.
struct KeyOf {
  const gpu::ProductShape& shape;
  uint32_t glu, half_parts;
  bool adapted;  // if it is a product of bytes
  gpu::PipelineKey operator()(const gpu::Gemv& how) const {
    return {Shader::kMatVec,
            gpu::kernels::ConstantsOf(gpu::kernels::MatVec{.threads = how.threads,
                                                           .type = shape.weight.dtype,
                                                           .lanes = how.lanes,
                                                           .nr = how.nr,
                                                           .nt = how.nt,
                                                           .glu = glu,
                                                           .mode = shape.mode,
                                                           .checked = HasRaggedRows(shape.weight),
                                                           .unroll = how.unroll,
                                                           .staged = 0,
                                                           .columns = 4})};
  }
  gpu::PipelineKey operator()(const gpu::NarrowProduct& how) const {
    return {Shader::kNarrowProduct, gpu::kernels::ConstantsOf(gpu::kernels::NarrowProduct{
                                        .threads = how.threads,
                                        .staged = 0,
                                        .columns = static_cast<uint32_t>(shape.weight.columns)})};
  }
  gpu::PipelineKey operator()(const gpu::TiledGemm& how) const {
    return {Shader::kMatMul,
            gpu::kernels::ConstantsOf(gpu::kernels::MatMul{.threads = 4 * how.tile_rows,
                                                           .type = shape.weight.dtype,
                                                           .glu = glu == 1,
                                                           .mode = shape.mode,
                                                           .checked = HasRaggedRows(shape.weight),
                                                           .tile = how.tile_rows})};
  }
  gpu::PipelineKey operator()(const gpu::ByteGemv& how) const {
    const auto experts = shape.mode == ProductMode::kDense    ? gpu::ExpertLayout::kNoExperts
                         : shape.mode == ProductMode::kShared ? gpu::ExpertLayout::kStacked
                                                              : gpu::ExpertLayout::kSideBySide;
    return {Shader::kMatVecDot, gpu::kernels::ConstantsOf(gpu::kernels::MatVecDot{
                                    .threads = how.threads,
                                    .type = shape.weight.dtype,
                                    .halves = glu == 1 ? 2 : 1,
                                    .unroll = 2,
                                    .turns = how.turns,
                                    .together = how.together,
                                    .experts = experts,
                                    .own_rows = how.own_rows,
                                    .one_row = 0,
                                    .adapted = adapted && shape.dense() && glu != 2,
                                    .max_columns = shape.staged_columns()})};
  }
  gpu::PipelineKey operator()(const gpu::CoopGemm& how) const {
    return {Shader::kMatMulCoop, gpu::kernels::ConstantsOf(gpu::kernels::MatMulCoop{
                                     .threads = how.tile.threads(),
                                     .type = shape.weight.dtype,
                                     .glu = glu == 1,
                                     .mode = shape.mode,
                                     .tile = how.tile.rows,
                                     .columns = how.tile.columns,
                                     .subgroup_rows = how.tile.subgroup_rows,
                                     .subgroup_columns = how.tile.subgroup_columns,
                                     .parts = half_parts,
                                     .adapted = adapted && shape.dense() && half_parts == 1})};
  }
  gpu::PipelineKey operator()(const gpu::WarpgroupGemm& how) const {
    return {Shader::kMatMulWarpgroup, gpu::kernels::ConstantsOf(gpu::kernels::MatMulWarpgroup{
                                          .threads = how.threads(),
                                          .type = shape.weight.dtype,
                                          .glu = glu == 1,
                                          .mode = shape.mode,
                                          .tile = how.tile.rows,
                                          .columns = how.tile.columns,
                                          .adapted = adapted && shape.dense()})};
  }
};

// Looks for each kernel once: `found` has those of the calls before.
void ExpectProducts(const DriverOptions& options, DType type, int64_t n, int64_t k, bool gated,
                    std::set<gpu::PipelineKey>& found) {
  const gpu::Target target = TargetOfH200(options);
  const std::vector<int64_t> dims{n, k};
  // Forms for any type of blocks have what products in two parts need.
  const bool has_parts = HasFormsFor(DType::kIQ2_XS) || !IsBlockType(type);
  const uint32_t half_parts = n % 2 == 0 && has_parts ? 2 : 1;
  for (const int64_t rows : {1, 2, 3, 4, 7, 8, 16, 64, 512}) {
    for (const ProductMode mode : {ProductMode::kDense, ProductMode::kShared, ProductMode::kPairs,
                                   ProductMode::kWeighted, ProductMode::kSummed}) {
      // Only products of bytes have their weights in the rows, and gates have results.
      const bool of_bytes = mode == ProductMode::kSummed;
      if (of_bytes && (gated || rows > 1 || !options.integer_dot || !IsBlockType(type))) continue;
      const gpu::ProductShape shape{
          .mode = mode, .weight = gpu::ShapeOf(type, dims), .n = n, .used = 4, .gated = gated};
      const gpu::ProductStep step{.rows = rows,
                                  .decisive = rows,
                                  .has_prologue = false,
                                  .may_take_bytes = true,
                                  .half_parts = half_parts,
                                  .results_beside = 0,
                                  .experts = {.count = 8}};
      const gpu::ProductPlan plan = gpu::ChooseProduct(shape, step, target);
      if (of_bytes && !std::holds_alternative<gpu::ByteGemv>(plan)) continue;
      for (const uint32_t glu : gated ? std::vector{1U} : std::vector{0U, 2U}) {
        if (glu == 2 && mode != ProductMode::kDense) continue;
        for (const bool adapted : {false, true}) {
          const gpu::PipelineKey key = std::visit(KeyOf{shape, glu, half_parts, adapted}, plan);
          if (!found.insert(key).second) continue;
          EXPECT_TRUE(Exists(key)) << TextOf(key);
        }
      }
    }
  }
}

void ExpectRowsSideBySide(const gpu::Target& target, DType type, int64_t k, bool gated,
                          bool adapted) {
  const std::vector<int64_t> dims{2048, k};
  for (const int64_t rows : {2, 3, 4, 8, 16}) {
    const gpu::ProductShape shape{.mode = ProductMode::kDense,
                                  .weight = gpu::ShapeOf(type, dims),
                                  .n = 2048,
                                  .used = 1,
                                  .gated = gated,
                                  .adapted = adapted};
    const gpu::ProductStep step{.rows = rows, .decisive = 1, .experts = {}};
    const KeyOf key_of{shape, gated ? 1U : 0U, 1, adapted};
    const gpu::PipelineKey key = std::visit(key_of, gpu::ChooseProduct(shape, step, target));
    EXPECT_TRUE(Exists(key)) << TextOf(key);
  }
}

TEST(CudaForms, ProductsOfAllTypesAndShapes) {
  EXPECT_GE(MatrixTypes().size(), 6U);
  constexpr DriverOptions kPlain{.tensor_cores = false, .integer_dot = false};
  std::set<gpu::PipelineKey> found;
  for (const DriverOptions& options : {DriverOptions{}, kPlain}) {
    for (const DType type : MatrixTypes()) {
      for (const int64_t k : {256, 1536, 12288, 30720}) {
        for (const int64_t n : {1, 64, 4096, 262143, 262144}) {
          ExpectProducts(options, type, n, k, false, found);
          ExpectProducts(options, type, n, k, true, found);
        }
      }
      if (!IsBlockType(type)) ExpectProducts(options, type, 7, 35, false, found);
    }
  }
}

// Rows of a step of several slots or of a draft, with and without an adapter.
TEST(CudaForms, ProductsOfAFewRowsSideBySide) {
  std::set<uint32_t> matrix_rows;
  for (const uint32_t most_shared_memory : {49152U, 101376U, 232448U}) {
    const gpu::Target target = TargetOfH200({}, most_shared_memory);
    matrix_rows.insert(target.can.integer_matrix_rows);
    for (const DType type : MatrixTypes()) {
      if (!IsBlockType(type)) continue;
      for (const int64_t k : {128, 256, 1536, 12288}) {
        for (const bool gated : {false, true}) {
          for (const bool adapted : {false, true}) {
            ExpectRowsSideBySide(target, type, k, gated, adapted);
          }
        }
      }
    }
  }
  EXPECT_EQ(matrix_rows, (std::set<uint32_t>{1, 4, 8}));
}

// Products of one row of x with short rows of Q4_K have a form of their own, which is looked for
// first; gated ones do not.
TEST(CudaForms, ShortRowsTakeFewRegisters) {
  const gpu::Target target = TargetOfH200({});
  const auto form_of = [&](int64_t columns, bool gated) {
    const std::vector<int64_t> dims{2048, columns};
    const gpu::ProductShape shape{.mode = ProductMode::kDense,
                                  .weight = gpu::ShapeOf(DType::kQ4_K, dims),
                                  .n = 2048,
                                  .used = 1,
                                  .gated = gated};
    const gpu::ProductStep step{.rows = 1,
                                .decisive = 1,
                                .has_prologue = false,
                                .may_take_bytes = true,
                                .half_parts = 1,
                                .results_beside = 0,
                                .experts = {}};
    const KeyOf key_of{shape, gated ? 1U : 0U, 1, false};
    return FindForm(std::visit(key_of, gpu::ChooseProduct(shape, step, target)));
  };
  EXPECT_EQ(form_of(1536, false), form_of(2048, false));
  EXPECT_NE(form_of(2048, false), form_of(2304, false));
  EXPECT_EQ(form_of(2048, true), form_of(1536, true));
  EXPECT_LT(form_of(2048, false), form_of(2304, false));
}

// With no tensor cores, none do.
TEST(CudaForms, WarpgroupsMultiplyWhereTheCodeUsesThem) {
  Facts facts;
  facts.capability = 90;
  facts.has_warpgroups = true;
  ASSERT_NE(TargetFor(facts, {}).can.multiplies_by_warpgroups, nullptr);
  EXPECT_TRUE(TargetFor(facts, {}).can.multiplies_by_warpgroups(DType::kQ4_K));
  EXPECT_FALSE(TargetFor(facts, {}).can.multiplies_by_warpgroups(DType::kF16));
  EXPECT_EQ(TargetFor(facts, {.tensor_cores = false}).can.multiplies_by_warpgroups, nullptr);
  facts.has_warpgroups = false;
  EXPECT_EQ(TargetFor(facts, {}).can.multiplies_by_warpgroups, nullptr);
}

// The kernels of the target have forms for any values, within what lowering keeps to.
TEST(CudaForms, KernelsOfOtherOps) {
  for (const Shader shader : gpu::AllShaders()) {
    const bool product = shader == Shader::kMatVecDot || shader == Shader::kMatMulCoop ||
                         shader == Shader::kMatMulWarpgroup || shader == Shader::kMatVec ||
                         shader == Shader::kMatMul || shader == Shader::kMatMulStored ||
                         shader == Shader::kMatMulPlain;
    const bool half = shader == Shader::kAttentionHalfCoop;
    const bool special = TraitsOf(shader).on_matrix_units && !product && !half;
    const auto is_one = [&](const Form& form) { return form.shader == shader; };
    const bool has = std::ranges::any_of(AllForms(), is_one);
    EXPECT_EQ(has, !special) << gpu::NameOf(shader);
    if (special || product || half) continue;
    gpu::PipelineKey key{shader, {64}};
    for (const gpu::SpecConstant& constant : gpu::ConstantsOf(shader)) {
      const bool is_count =
          constant.name == "kBatch" || constant.name == "kPairs" || constant.name == "kKeys";
      key.constants.push_back(is_count ? 8 : constant.name == "kSplit" ? 16 : 1);
    }
    for (const uint32_t threads : {64U, 128U, 256U}) {
      key.constants.front() = threads;
      if (Exists(key)) break;
    }
    EXPECT_TRUE(Exists(key)) << TextOf(key);
  }
}

gpu::PipelineKey AttentionKey(uint32_t group, uint32_t rows, uint32_t dim) {
  return {Shader::kAttention, gpu::kernels::ConstantsOf(gpu::kernels::Attention{
                                  .threads = 128,
                                  .heads = 16,
                                  .kv_heads = 16 / group,
                                  .group = group,
                                  .rows = rows,
                                  .dim = dim,
                                  .key_type = static_cast<uint32_t>(DType::kF16),
                                  .value_type = static_cast<uint32_t>(DType::kF16),
                                  .slots = 1,
                                  .capacity = 100,
                                  .window = 0,
                                  .canvas = 0,
                                  .scale = 1.0F,
                                  .batch = 8})};
}

TEST(CudaForms, AttentionWithinItsMemory) {
  EXPECT_TRUE(Exists(AttentionKey(8, 2, 256)));
  EXPECT_TRUE(Exists(AttentionKey(8, 1, 512)));
  EXPECT_TRUE(Exists(AttentionKey(1, 16, 64)));
  EXPECT_TRUE(Exists(AttentionKey(1, 1, 4096)));
  EXPECT_FALSE(Exists(AttentionKey(8, 4, 64))) << "more queries than there is memory for";
  EXPECT_FALSE(Exists(AttentionKey(8, 2, 512))) << "queries too long together";
}

TEST(CudaForms, AttentionOnTensorCores) {
  gpu::kernels::AttentionHalfCoop constants{.threads = 256,
                                            .heads = 8,
                                            .kv_heads = 1,
                                            .group = 8,
                                            .queries = 64,
                                            .dim = 256,
                                            .slots = 4,
                                            .capacity = 100,
                                            .window = 512,
                                            .canvas = 0,
                                            .scale = 1.0F,
                                            .key_type = DType::kF16,
                                            .value_type = DType::kF16,
                                            .units = 0};
  const auto check = [&] {
    const gpu::PipelineKey key{Shader::kAttentionHalfCoop, gpu::kernels::ConstantsOf(constants)};
    EXPECT_TRUE(Exists(key)) << TextOf(key);
  };
  for (const auto& [queries, dim] : {std::pair{64U, 256U}, {32U, 256U}, {32U, 512U}}) {
    constants.queries = queries;
    constants.dim = dim;
    constants.key_type = constants.value_type = DType::kF16;
    for (const uint32_t units : {1U, 0U}) {
      constants.units = units;
      check();
    }
    for (const DType type : {DType::kQ8_0, DType::kQ4_0}) {
      constants.value_type = type;
      check();
      constants.key_type = type;
      check();
    }
  }
}

TEST(CudaForms, AttentionOfOneRow) {
  for (const uint32_t dim : {8U, 64U, 128U, 256U, 512U, 1024U}) {
    for (const auto& [keys, values] : {std::pair{DType::kF16, DType::kF16},
                                       {DType::kF32, DType::kF32},
                                       {DType::kBF16, DType::kBF16},
                                       {DType::kQ8_0, DType::kQ8_0},
                                       {DType::kQ8_0, DType::kQ4_0}}) {
      const gpu::PipelineKey key{
          Shader::kAttentionRow,
          gpu::kernels::ConstantsOf(gpu::kernels::AttentionRow{.threads = 256,
                                                               .heads = 8,
                                                               .kv_heads = 1,
                                                               .group = 2,
                                                               .dim = dim,
                                                               .key_type = keys,
                                                               .slots = 1,
                                                               .capacity = 100,
                                                               .window = 0,
                                                               .canvas = 0,
                                                               .scale = 1.0F,
                                                               .split = 16,
                                                               .teams = std::min(1024 / dim, 16U),
                                                               .one_row = 1,
                                                               .value_type = values})};
      EXPECT_TRUE(Exists(key)) << TextOf(key);
    }
  }
}

TEST(CudaForms, ConstantsFitTheirMemory) {
  for (const Shader shader : gpu::AllShaders()) {
    EXPECT_LT(gpu::ConstantsOf(shader).size() + 1, kConstantWords) << gpu::NameOf(shader);
  }
}

}  // namespace
}  // namespace rullama::cuda
