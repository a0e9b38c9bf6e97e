// The budget of a picture, by what is asked for and by what its tower has.
#include <gtest/gtest.h>

#include <array>

#include "core/base/must_test_util.h"
#include "engine/media/request_media.h"
#include "media/picture_size.h"

namespace rullama {
namespace {

TEST(PictureBudget, IsOneOfTheTowers) {
  EXPECT_EQ(Must(PictureBudget(kImageTokenBudgets, 560, 48, 48)), 560U);
  EXPECT_EQ(Must(PictureBudget(kImageTokenBudgets, 0, 48, 48)), DefaultImageTokens(48, 48));
  EXPECT_EQ(PictureBudget(kImageTokenBudgets, 256, 48, 48).error().message,
            "image_tokens is 256, expected one of 70, 140, 280, 560, 1120");
}

// Clients send numbers of Gemma 4 to whichever model they talk to, such as those of `detail`.
TEST(PictureBudget, OfATowerWithASingleNumberIsThatOne) {
  constexpr std::array<uint32_t, 1> kSingle = {256};
  for (const int64_t asked : {0, 70, 256, 1120}) {
    EXPECT_EQ(Must(PictureBudget(kSingle, asked, 48, 48)), 256U) << asked;
  }
  const auto refused = PictureBudget(kSingle, 12'345, 48, 48);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().id, "usage.request");
  EXPECT_EQ(refused.error().message, "image_tokens is 12345, expected 256");
}

}  // namespace
}  // namespace rullama
