// Compares attention on every level with a float64 softmax over the visible keys.
#include <rullama/sdk/cache_rows.h>
#include <rullama/sdk/dequantize.h>
#include <rullama/sdk/half.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "backends/cpu/kernels/kernel_table.h"
#include "backends/cpu/kernels/test_weights.h"
#include "gtest/gtest.h"

namespace rullama::cpu {
namespace {

using testing::AvailableIsas;
using testing::RandomFloats;
using testing::Rng;

// Keys or values of one head inside wider cache rows, in the cache's type.
struct Cache {
  std::vector<float> exact;    // [rows][dim]: the values after rounding to the cache's type
  std::vector<uint8_t> bytes;  // rows `stride` bytes apart
  size_t stride = 0;
};

Cache MakeCache(size_t rows, size_t dim, DType dtype, Rng& rng) {
  Cache cache;
  cache.exact = RandomFloats(rows * dim, 0.5f, rng);
  const auto row_bytes = static_cast<size_t>(RowBytes(dtype, dim));
  cache.stride = 2 * row_bytes;  // the row of another head lies between
  cache.bytes.assign(rows * cache.stride, 0xFF);
  for (size_t row = 0; row < rows; ++row) {
    float* exact = &cache.exact[row * dim];
    auto* bytes = reinterpret_cast<std::byte*>(&cache.bytes[row * cache.stride]);
    for (size_t i = 0; i < dim && !IsBlockType(dtype); ++i) {
      const uint16_t half = FloatToHalf(exact[i]), brain = FloatToBFloat16(exact[i]);
      if (dtype == DType::kF16) exact[i] = HalfToFloat(half);
      if (dtype == DType::kBF16) exact[i] = BFloat16ToFloat(brain);
      const void* from = &exact[i];
      if (dtype == DType::kF16) from = &half;
      if (dtype == DType::kBF16) from = &brain;
      std::memcpy(bytes + RowBytes(dtype, i), from, static_cast<size_t>(RowBytes(dtype, 1)));
    }
    if (!IsBlockType(dtype)) continue;
    sdk::QuantizeCacheRow(dtype, exact, dim, bytes);
    sdk::FindDequantizer(dtype)(bytes, dim / sdk::kCacheBlock, exact);
  }
  return cache;
}

struct Part {
  size_t rows;
  int64_t first_position;
  DType dtype;
};

struct Scene {
  size_t dim = 0;
  std::vector<Part> parts;
  std::vector<Cache> keys, values;
  std::vector<KvSegment> segments;
  std::vector<float> q, out;  // [queries][dim]
  std::vector<AttentionQuery> queries;
};

Scene MakeScene(size_t dim, std::vector<Part> parts, size_t query_count, Rng& rng) {
  Scene s;
  s.dim = dim;
  s.parts = std::move(parts);
  for (const Part& part : s.parts) {
    s.keys.push_back(MakeCache(part.rows, dim, part.dtype, rng));
    s.values.push_back(MakeCache(part.rows, dim, part.dtype, rng));
  }
  for (size_t i = 0; i < s.parts.size(); ++i) {
    s.segments.push_back({.keys = s.keys[i].bytes.data(),
                          .values = s.values[i].bytes.data(),
                          .key_stride = s.keys[i].stride,
                          .value_stride = s.values[i].stride,
                          .count = s.parts[i].rows,
                          .first_position = s.parts[i].first_position,
                          .key_type = s.parts[i].dtype,
                          .value_type = s.parts[i].dtype});
  }
  s.q = RandomFloats(query_count * dim, 1.0f, rng);
  s.out.assign(query_count * dim, 7.0f);
  for (size_t i = 0; i < query_count; ++i) {
    s.queries.push_back({.q = &s.q[i * dim], .out = &s.out[i * dim]});
  }
  return s;
}

std::vector<double> Reference(const Scene& s, const AttentionQuery& query, float scale) {
  std::vector<double> scores, sum(s.dim, 0.0);
  std::vector<const float*> values;
  for (size_t p = 0; p < s.parts.size(); ++p) {
    for (size_t r = 0; r < s.parts[p].rows; ++r) {
      const int64_t position = s.parts[p].first_position + static_cast<int64_t>(r);
      if (position < query.first_visible || position > query.last_visible) continue;
      double score = 0;
      for (size_t d = 0; d < s.dim; ++d)
        score += double{query.q[d]} * s.keys[p].exact[r * s.dim + d];
      scores.push_back(score * scale);
      values.push_back(&s.values[p].exact[r * s.dim]);
    }
  }
  double largest = -INFINITY, total = 0;
  for (double score : scores) largest = std::max(largest, score);
  for (double score : scores) total += std::exp(score - largest);
  for (size_t i = 0; i < scores.size(); ++i) {
    const double weight = std::exp(scores[i] - largest) / total;
    for (size_t d = 0; d < s.dim; ++d) sum[d] += weight * values[i][d];
  }
  return sum;
}

// One of the kernels of a level.
struct AttentionKernel {
  Isa isa;
  bool on_matrix_unit;
};

std::vector<AttentionKernel> AvailableKernels() {
  std::vector<AttentionKernel> kernels;
  for (const Isa isa : AvailableIsas()) {
    kernels.push_back({isa, false});
    if (KernelsFor(isa).split_attention != nullptr) kernels.push_back({isa, true});
  }
  return kernels;
}

class AttentionTest : public ::testing::TestWithParam<AttentionKernel> {
 protected:
  // `args` without scratch.
  void Run(AttentionArgs args) const {
    const bool split = GetParam().on_matrix_unit;
    const KernelTable& table = KernelsFor(GetParam().isa);
    std::vector<float> scratch((split ? SplitAttentionScratchBytes : AttentionScratchBytes)(
                                   args.head_dim, args.query_count) /
                               sizeof(float));
    args.scratch = scratch.data();
    (split ? table.split_attention : table.attention)(args);
  }

  void Run(Scene& s, float scale) const {
    Run({.segments = s.segments.data(),
         .segment_count = s.segments.size(),
         .queries = s.queries.data(),
         .query_count = s.queries.size(),
         .head_dim = s.dim,
         .scale = scale});
  }

  // Scores of a few units have an absolute error of about 1e-6, which becomes the relative error of
  // the softmax weights; values are below 3. On the matrix unit weights and values have 16 bits.
  static double Tolerance() { return GetParam().on_matrix_unit ? 5e-5 : 5e-6; }

  static void Check(const Scene& s, float scale) {
    for (size_t i = 0; i < s.queries.size(); ++i) {
      const auto expected = Reference(s, s.queries[i], scale);
      for (size_t d = 0; d < s.dim; ++d) {
        ASSERT_NEAR(s.out[i * s.dim + d], expected[d], Tolerance())
            << "query " << i << " dim " << d;
      }
    }
  }
};

TEST_P(AttentionTest, DecodeWithSharedHead) {
  Rng rng(1);
  for (size_t dim : {8u, 24u, 32u, 64u, 128u, 256u, 512u}) {
    for (DType dtype : {DType::kF16, DType::kF32}) {
      for (size_t heads : {1u, 2u, 5u, 8u}) {
        Scene s = MakeScene(dim, {{71, 0, dtype}}, heads, rng);
        for (auto& query : s.queries) query.last_visible = 70;
        Run(s, 0.25f);
        Check(s, 0.25f);
      }
    }
  }
}

TEST_P(AttentionTest, CachesOfOtherTypes) {
  Rng rng(3);
  for (size_t dim : {32u, 64u, 96u, 256u, 512u}) {
    for (DType dtype : {DType::kBF16, DType::kQ8_0, DType::kQ4_0}) {
      for (size_t heads : {1u, 2u, 5u, 8u, 40u}) {
        Scene s = MakeScene(dim, {{71, 0, dtype}}, heads, rng);
        for (auto& query : s.queries) query.last_visible = 70;
        Run(s, 0.25f);
        Check(s, 0.25f);
      }
    }
  }
}

TEST_P(AttentionTest, KeysAndValuesMayDifferInType) {
  Rng rng(4);
  for (const auto& [keys, values] :
       {std::pair(DType::kF16, DType::kQ8_0), std::pair(DType::kQ8_0, DType::kQ4_0),
        std::pair(DType::kQ4_0, DType::kF16)}) {
    for (size_t heads : {2u, 8u, 40u}) {
      Scene s = MakeScene(64, {{71, 0, keys}}, heads, rng);
      s.values[0] = MakeCache(71, 64, values, rng);
      s.segments[0].values = s.values[0].bytes.data();
      s.segments[0].value_stride = s.values[0].stride;
      s.segments[0].value_type = values;
      for (auto& query : s.queries) query.last_visible = 70;
      Run(s, 0.25f);
      Check(s, 0.25f);
    }
  }
}

TEST_P(AttentionTest, PrefillAfterAWrappedRing) {
  Rng rng(2);
  // A ring of 96 rows that has wrapped, at position 120, then 20 fresh rows in float32.
  Scene s = MakeScene(64, {{73, 47, DType::kF16}, {23, 24, DType::kF16}, {20, 120, DType::kF32}},
                      2 * 20, rng);
  constexpr int64_t kWindow = 50;
  for (size_t i = 0; i < s.queries.size(); ++i) {
    const int64_t position = 120 + static_cast<int64_t>(i / 2);
    s.queries[i].first_visible = position - kWindow + 1;
    s.queries[i].last_visible = position;
  }
  Run(s, 1.0f);
  Check(s, 1.0f);
}

// A few queries read rows where they lie, many read a converted tile.
constexpr size_t kFewQueries = 2, kManyQueries = 11;

TEST_P(AttentionTest, JoinedSegmentsGiveTheBytesOfOne) {
  Rng rng(9);
  for (const size_t queries : {kFewQueries, kManyQueries}) {
    Scene whole = MakeScene(64, {{100, 40, DType::kF16}}, queries, rng);
    for (auto& query : whole.queries) query.last_visible = 139;
    Run(whole, 0.5f);
    Scene parts = whole;
    for (size_t i = 0; i < parts.queries.size(); ++i)
      parts.queries[i].out = &parts.out[i * parts.dim];
    const KvSegment all = whole.segments.front();
    parts.segments.clear();
    for (const auto& [begin, end] : {std::pair<size_t, size_t>{0, 27}, {27, 96}, {96, 100}}) {
      KvSegment segment = all;
      segment.keys = static_cast<const std::byte*>(all.keys) + begin * all.key_stride;
      segment.values = static_cast<const std::byte*>(all.values) + begin * all.value_stride;
      segment.count = end - begin;
      segment.first_position += static_cast<int64_t>(begin);
      segment.joins = begin > 0;
      parts.segments.push_back(segment);
    }
    Run(parts, 0.5f);
    EXPECT_EQ(parts.out, whole.out) << queries;
  }
}

TEST_P(AttentionTest, JoinedSegmentsMayHaveBothTypes) {
  Rng rng(10);
  Scene s = MakeScene(64, {{27, 0, DType::kF16}, {50, 27, DType::kF32}, {40, 77, DType::kF16}},
                      kManyQueries, rng);
  for (auto& query : s.queries) query.last_visible = 116;
  for (size_t i = 1; i < s.segments.size(); ++i) s.segments[i].joins = true;
  Run(s, 0.5f);
  Check(s, 0.5f);
  const std::vector<float> many = s.out;
  s.queries.resize(kFewQueries);
  Run(s, 0.5f);
  EXPECT_EQ(s.out, many);
}

TEST_P(AttentionTest, CanvasSeesBothWays) {
  Rng rng(3);
  Scene s = MakeScene(32, {{10, 0, DType::kF16}, {40, 10, DType::kF32}}, 40, rng);
  for (auto& query : s.queries) query.last_visible = 49;
  Run(s, 1.0f);
  Check(s, 1.0f);
}

TEST_P(AttentionTest, ManyQueriesOverManyTiles) {
  Rng rng(8);
  for (const size_t dim : {72u, 512u}) {
    // More than one tile of keys of every kernel, and blocks of queries to which some tiles are
    // invisible.
    Scene s = MakeScene(dim, {{300, 0, DType::kF16}, {150, 300, DType::kF32}}, 150, rng);
    for (size_t i = 0; i < s.queries.size(); ++i) {
      s.queries[i].last_visible = 300 + static_cast<int64_t>(i);
      s.queries[i].first_visible = i < 64 ? 0 : 250;
    }
    Run(s, 0.5f);
    Check(s, 0.5f);
  }
}

TEST_P(AttentionTest, NothingVisibleGivesZero) {
  Rng rng(4);
  Scene s = MakeScene(32, {{40, 0, DType::kF16}}, 2, rng);
  s.queries[0].first_visible = 100;
  s.queries[0].last_visible = 200;
  s.queries[1].last_visible = 39;
  Run(s, 1.0f);
  for (size_t d = 0; d < s.dim; ++d) EXPECT_EQ(s.out[d], 0.0f);
  Check(s, 1.0f);
}

TEST_P(AttentionTest, LargeScoresDoNotOverflow) {
  Rng rng(5);
  Scene s = MakeScene(64, {{100, 0, DType::kF16}}, 3, rng);
  for (auto& query : s.queries) query.last_visible = 99;
  Run(s, 1000.0f);
  for (size_t i = 0; i < s.queries.size(); ++i) {
    const auto expected = Reference(s, s.queries[i], 1000.0f);
    // Scores of some thousands are rounded by about 5e-4, the relative error of the softmax
    // weights.
    for (size_t d = 0; d < s.dim; ++d) ASSERT_NEAR(s.out[i * s.dim + d], expected[d], 5e-3);
  }
}

TEST_P(AttentionTest, QueriesDoNotDependOnEachOther) {
  Rng rng(6);
  Scene s = MakeScene(256, {{90, 0, DType::kF16}}, 11, rng);
  for (size_t i = 0; i < s.queries.size(); ++i) {
    s.queries[i].last_visible = 79 + static_cast<int64_t>(i);
    s.queries[i].first_visible = static_cast<int64_t>(5 * i);
  }
  Run(s, 1.0f);
  const std::vector<float> together = s.out;
  const std::vector<AttentionQuery> all = s.queries;
  for (const AttentionQuery& query : all) {
    s.queries = {query};
    Run(s, 1.0f);
  }
  EXPECT_EQ(s.out, together);
}

TEST_P(AttentionTest, PartsJoinToTheWhole) {
  Rng rng(7);
  constexpr size_t kDim = 64, kQueries = 3, kParts = 3;
  Scene s = MakeScene(kDim, {{40, 0, DType::kF16}, {50, 40, DType::kF16}, {9, 90, DType::kF16}},
                      kQueries, rng);
  for (size_t i = 0; i < kQueries; ++i) s.queries[i].last_visible = 98;
  s.queries[1].last_visible = 60;  // sees no key of the last part
  std::vector<float> acc(kParts * kQueries * kDim), max(kParts * kQueries), sum(kParts * kQueries);
  for (size_t p = 0; p < kParts; ++p) {
    auto queries = s.queries;
    for (size_t i = 0; i < kQueries; ++i) queries[i].out = &acc[(p * kQueries + i) * kDim];
    Run({.segments = &s.segments[p],
         .segment_count = 1,
         .queries = queries.data(),
         .query_count = kQueries,
         .head_dim = kDim,
         .scale = 1.0f,
         .partial_max = &max[p * kQueries],
         .partial_sum = &sum[p * kQueries]});
  }
  for (size_t i = 0; i < kQueries; ++i) {
    float part_max[kParts], part_sum[kParts];
    for (size_t p = 0; p < kParts; ++p) {
      part_max[p] = max[p * kQueries + i];
      part_sum[p] = sum[p * kQueries + i];
    }
    AttentionMerge(&acc[i * kDim], kQueries * kDim, part_max, part_sum, kParts, kDim,
                   s.queries[i].out);
  }
  Check(s, 1.0f);
}

INSTANTIATE_TEST_SUITE_P(Levels, AttentionTest, ::testing::ValuesIn(AvailableKernels()),
                         [](const ::testing::TestParamInfo<AttentionKernel>& test) {
                           const auto isa = testing::IsaTestName({test.param.isa, test.index});
                           return test.param.on_matrix_unit ? isa + "_matrix_unit" : isa;
                         });

}  // namespace
}  // namespace rullama::cpu
