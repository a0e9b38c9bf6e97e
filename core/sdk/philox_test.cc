#include <gtest/gtest.h>
#include <rullama/sdk/philox.h>

namespace rullama {
namespace {

// Known answers of the authors' Random123 library (kat_vectors, philox4x32 10).
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}).word,
            (std::array<uint32_t, 4>{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
  EXPECT_EQ(
      Philox4x32({0xffffffffu, 0xffffffffu, 0xffffffffu, 0xffffffffu}, {0xffffffffu, 0xffffffffu})
          .word,
      (std::array<uint32_t, 4>{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}));
  EXPECT_EQ(
      Philox4x32({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}, {0xa4093822u, 0x299f31d0u})
          .word,
      (std::array<uint32_t, 4>{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}));
}

TEST(Philox, UniformIsInTheHalfOpenIntervalAndKeyed) {
  double sum = 0;
  constexpr uint32_t kDraws = 10000;
  for (uint32_t position = 0; position < kDraws; ++position) {
    const float u = PhiloxUniform(42, position, 0, 0);
    ASSERT_GE(u, 0.0f);
    ASSERT_LT(u, 1.0f);
    sum += u;
  }
  EXPECT_NEAR(sum / kDraws, 0.5, 0.02);  // 7 standard errors of the mean of uniforms
  EXPECT_NE(PhiloxUniform(42, 1, 0, 0), PhiloxUniform(43, 1, 0, 0));
  EXPECT_NE(PhiloxUniform(42, 1, 0, 0), PhiloxUniform(42, 1, 1, 0));
  EXPECT_NE(PhiloxUniform(42, 1, 0, 0), PhiloxUniform(42, 1, 0, 1));
}

}  // namespace
}  // namespace rullama
