#include "core/base/size_text.h"

#include <gtest/gtest.h>

namespace rullama {
namespace {

TEST(SizeText, TakesTheUnitThatFits) {
  EXPECT_EQ(SizeText(0), "0.0 KiB");
  EXPECT_EQ(SizeText(512), "0.5 KiB");
  EXPECT_EQ(SizeText((uint64_t{1} << 20) - 1), "1024.0 KiB");
  EXPECT_EQ(SizeText(uint64_t{1} << 20), "1.0 MiB");
  EXPECT_EQ(SizeText(9'332'326), "8.9 MiB");
  EXPECT_EQ(SizeText(uint64_t{3} << 30), "3.00 GiB");
  EXPECT_EQ(SizeText(uint64_t{3} << 40), "3.0 TiB");
  EXPECT_EQ(SizeText(uint64_t{1} << 50), "1.0 PiB");
}

TEST(SizeText, CountsParameters) {
  EXPECT_EQ(ParametersText(4'630'000'000), "4.63 B");
  EXPECT_EQ(ParametersText(3'210'000), "3.21 M");
}

}  // namespace
}  // namespace rullama
