#include "core/config/nearest_key.h"

#include <gtest/gtest.h>

#include <vector>

namespace rullama {
namespace {

TEST(EditDistance, CountsInsertDeleteReplaceSwap) {
  EXPECT_EQ(EditDistance("", ""), 0u);
  EXPECT_EQ(EditDistance("top_k", "top_k"), 0u);
  EXPECT_EQ(EditDistance("", "abc"), 3u);
  EXPECT_EQ(EditDistance("abc", ""), 3u);
  EXPECT_EQ(EditDistance("topk", "top_k"), 1u);
  EXPECT_EQ(EditDistance("top_kk", "top_k"), 1u);
  EXPECT_EQ(EditDistance("top_q", "top_k"), 1u);
  EXPECT_EQ(EditDistance("modle", "model"), 1u);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3u);
}

TEST(NearestName, NamesAMisspellingAndNothingElse) {
  const std::vector<std::string> names = {"temperature", "top_k", "top_p", "seed"};
  EXPECT_EQ(NearestName("temprature", names), "temperature");
  EXPECT_EQ(NearestName("topp", names), "top_p");
  EXPECT_EQ(NearestName("sede", names), "seed");
  EXPECT_EQ(NearestName("capacity", names), "");
  EXPECT_EQ(NearestName("", names), "");
  EXPECT_EQ(NearestName(std::string(1 << 20, 'x'), names), "");
}

}  // namespace
}  // namespace rullama
