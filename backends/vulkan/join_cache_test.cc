#include "backends/vulkan/join_cache.h"

#include <gtest/gtest.h>

#include <array>
#include <set>

namespace rullama::vulkan {
namespace {

constexpr std::array<uint32_t, 6> kDriver = {0x07230203, 1, 2, 3, 4, 5};
constexpr std::array<uint32_t, 2> kCode = {7, 8};
constexpr std::array<uint32_t, 1> kShorter = {7};
constexpr std::array<uint32_t, 2> kOther = {7, 9};
constexpr std::array<uint32_t, 2> kConstants = {128, 3};

TEST(JoinCache, KeyNamesWhatIsJoined) {
  const std::vector<std::vector<TaskSource>> different = {
      {},
      {{kCode, kConstants}},
      {{kOther, kConstants}},
      {{kCode, kShorter}},
      {{kShorter, kConstants}},
      {{kConstants, kCode}},
      {{kCode, kConstants}, {kOther, kConstants}},
      {{kOther, kConstants}, {kCode, kConstants}},
  };
  std::set<std::string> keys;
  for (const auto& tasks : different) keys.insert(JoinedKey(kDriver, tasks));
  keys.insert(JoinedKey(kCode, different[1]));
  EXPECT_EQ(keys.size(), different.size() + 1);
  EXPECT_EQ(JoinedKey(kDriver, different[1]), JoinedKey(kDriver, different[1]));
}

TEST(JoinCache, KeepsWhatWasJoined) {
  const Joined joined{.code = {kDriver.begin(), kDriver.end()}, .shared_bytes = 4'096};
  const auto read = UnpackJoined(PackJoined(joined));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->code, joined.code);
  EXPECT_EQ(read->shared_bytes, joined.shared_bytes);
}

TEST(JoinCache, TakesNothingElse) {
  const std::vector<std::byte> packed =
      PackJoined({.code = {kDriver.begin(), kDriver.end()}, .shared_bytes = 1});
  EXPECT_FALSE(UnpackJoined({}));
  for (size_t size = 0; size < packed.size(); ++size) {
    EXPECT_FALSE(UnpackJoined(std::span(packed).first(size))) << size;
  }
  std::vector<std::byte> wrong = packed;
  wrong[sizeof(uint32_t)] ^= std::byte{1};
  EXPECT_FALSE(UnpackJoined(wrong));
}

}  // namespace
}  // namespace rullama::vulkan
