#include "core/ir/types.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rullama {
namespace {

using ::testing::HasSubstr;

TEST(TypesTest, DimsAreAffineInTheSymbols) {
  const Dim dim(3, 2, 1);
  EXPECT_EQ(dim.At({.t = 10, .r = 4}), 27);
  EXPECT_FALSE(dim.IsConstant());
  EXPECT_EQ(ToString(dim), "2T+R+3");
  EXPECT_EQ(ToString(Dim::T()), "T");
  EXPECT_EQ(ToString(Dim(7)), "7");
}

TEST(TypesTest, BytesCountBlocks) {
  const TensorType weight(DType::kQ4_K, {10, 512});
  EXPECT_EQ(weight.ElementsAt({}), 5120);
  EXPECT_EQ(weight.BytesAt({}), 20u * 144u);
  EXPECT_EQ(ToString(weight), "q4_k[10,512]");
  const TensorType rows(DType::kF32, {Dim::R(), 8});
  EXPECT_EQ(rows.BytesAt({.t = 5, .r = 0}), 0u);
}

TEST(TypesTest, CheckTypeNamesWhatIsWrong) {
  const auto message = [](const TensorType& type, const Extents& extents = {}) {
    const Status status = CheckType(type, extents);
    return status ? std::string("accepted") : status.error().message;
  };
  EXPECT_EQ(message({DType::kF32, {Dim::T(), 8}}), "accepted");
  EXPECT_THAT(message({static_cast<DType>(99), {8}}), HasSubstr("unknown dtype 99"));
  EXPECT_THAT(message({DType::kF32, {}}), HasSubstr("rank 0"));
  EXPECT_THAT(message({DType::kF32, {1, 1, 1, 1, 1}}), HasSubstr("rank 5"));
  EXPECT_THAT(message({DType::kF32, {0}}), HasSubstr("dimension 0"));
  EXPECT_THAT(message({DType::kF32, {8, -1}}), HasSubstr("dimension 1"));
  EXPECT_THAT(message({DType::kF32, {Dim(0, -1, 0)}}), HasSubstr("dimension 0"));
  EXPECT_THAT(message({DType::kF32, {Dim(0, INT32_MAX, 0)}}), HasSubstr("within bounds"));
  EXPECT_THAT(message({DType::kF32, {INT64_MAX, INT64_MAX}}), HasSubstr("within bounds"));
  EXPECT_THAT(message({DType::kF32, {1 << 30, 1 << 30}}), HasSubstr("2^48"));
  EXPECT_THAT(message({DType::kF32, {Dim::T(), 1 << 30}}, {.t = 1 << 30, .r = 1}),
              HasSubstr("2^48"));
  EXPECT_THAT(message({DType::kQ8_0, {2, 33}}), HasSubstr("block length 32"));
  EXPECT_THAT(message({DType::kQ8_0, {2, Dim::T()}}), HasSubstr("block length 32"));
  TensorType dirty(DType::kF32, {8});
  dirty.dim(3) = 5;
  EXPECT_THAT(message(dirty), HasSubstr("dimension 3 of a rank 1 type"));
}

}  // namespace
}  // namespace rullama
