#include "engine/media/media_cache.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace rullama {
namespace {

constexpr int64_t kBytes = 400;  // of the soft tokens below

std::shared_ptr<const SoftTokens> Soft(uint64_t hash) {
  return std::make_shared<const SoftTokens>(
      SoftTokens{.hash = {.low = hash}, .values = std::vector<float>(kBytes / 4)});
}

TEST(MediaCacheTest, GivesBackWhatWasKeptToItsClient) {
  MediaCache cache(2 * kBytes);
  const auto soft = Soft(7);
  cache.Keep(1, soft);
  EXPECT_EQ(cache.Find(1, {.low = 7}), soft);
  EXPECT_EQ(cache.Find(1, {.low = 8}), nullptr);
  EXPECT_EQ(cache.Find(2, {.low = 7}), nullptr);
}

TEST(MediaCacheTest, BeyondTheLimitTheOneUsedLongestAgoGoes) {
  MediaCache cache(2 * kBytes);
  for (const uint64_t hash : {1U, 2U}) cache.Keep(0, Soft(hash));
  EXPECT_NE(cache.Find(0, {.low = 1}), nullptr);
  cache.Keep(0, Soft(3));
  EXPECT_NE(cache.Find(0, {.low = 1}), nullptr);
  EXPECT_EQ(cache.Find(0, {.low = 2}), nullptr);
  EXPECT_NE(cache.Find(0, {.low = 3}), nullptr);
  EngineStats stats;
  cache.AddTo(stats);
  EXPECT_EQ(stats.media_entries, 2);
  EXPECT_EQ(stats.media_bytes, 2 * kBytes);
}

TEST(MediaCacheTest, WhatIsLargerThanTheLimitIsNotKept) {
  MediaCache cache(kBytes - 1);
  cache.Keep(0, Soft(1));
  EXPECT_EQ(cache.Find(0, {.low = 1}), nullptr);
}

}  // namespace
}  // namespace rullama
