#include "engine/scheduling/prefix_cache.h"

#include <gmock/gmock.h>

#include <string>

#include "core/base/must_test_util.h"
#include "engine/loading/cache_limits.h"

namespace rullama {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<int64_t> Thinned(const std::vector<int64_t>& positions) {
  return ThinnedPositions(positions);
}

TEST(PrefixCacheTest, KeepsTheFirstTheLastTwoAndPowersOfTwoBetween) {
  EXPECT_THAT(Thinned({}), IsEmpty());
  EXPECT_THAT(Thinned({64}), ElementsAre(64));
  EXPECT_THAT(Thinned({64, 128}), ElementsAre(64, 128));
  EXPECT_THAT(Thinned({0, 100, 200, 300, 400, 500, 600, 700, 800}),
              ElementsAre(0, 100, 300, 600, 700, 800));
}

Result<uint64_t> LimitOf(const std::string& mib, uint64_t available) {
  LayeredConfig config;
  if (!mib.empty()) {
    EXPECT_TRUE(config.Set("server.prefix_cache_mib", mib, Origin::kFlag, "test"));
  }
  return PrefixCacheLimit(config, available);
}

TEST(PrefixCacheTest, TakesAtMostHalfOfTheMemoryThatIsFree) {
  constexpr uint64_t kGib = uint64_t{1} << 30U;
  EXPECT_EQ(Must(LimitOf("", 8 * kGib)), kGib);
  EXPECT_EQ(Must(LimitOf("", kGib)), kGib / 2);
  EXPECT_EQ(Must(LimitOf("", 0)), kGib) << "unknown";
  EXPECT_EQ(Must(LimitOf("0", kGib)), 0U);
  EXPECT_EQ(Must(LimitOf("512", kGib)), kGib / 2);
  const auto error = LimitOf("513", kGib);
  ASSERT_FALSE(error);
  EXPECT_EQ(error.error().id, "config.range");
  EXPECT_GT(AvailableHostMemory(), 0U);
}

}  // namespace
}  // namespace rullama
