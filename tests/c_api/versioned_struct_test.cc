// Structs of the C interface that have grown are read from older and newer callers.
#include "engine/c_api/versioned_struct.h"

#include <gtest/gtest.h>

#include <memory>

namespace rullama::c_api {
namespace {

struct Grown {
  uint32_t struct_size;
  int32_t first;
  int64_t second;  // since 1.1
  int64_t third;   // since 1.2
};
constexpr size_t kSize10 = 8;

// The first `size` bytes of {size, 1, 2, 3}, with nothing after them that may be read.
Result<Grown> ReadSized(uint32_t size) {
  const Grown all = {size, 1, 2, 3};
  const std::unique_ptr<std::byte[]> bytes(new std::byte[size]);
  std::memcpy(bytes.get(), &all, std::min<size_t>(size, sizeof all));
  if (size > sizeof all) std::memset(bytes.get() + sizeof all, 0, size - sizeof all);
  return ReadStruct(reinterpret_cast<const Grown*>(bytes.get()), kSize10, "grown");
}

TEST(VersionedStruct, MembersThatAnOldCallerLacksAreZero) {
  const auto oldest = ReadSized(8);
  ASSERT_TRUE(oldest) << oldest.error().ToString();
  EXPECT_EQ(oldest->first, 1);
  EXPECT_EQ(oldest->second, 0);
  EXPECT_EQ(oldest->third, 0);
  const auto old = ReadSized(16);
  ASSERT_TRUE(old) << old.error().ToString();
  EXPECT_EQ(old->second, 2);
  EXPECT_EQ(old->third, 0);
}

TEST(VersionedStruct, ACallerOfThisVersionGivesAll) {
  const auto now = ReadSized(sizeof(Grown));
  ASSERT_TRUE(now) << now.error().ToString();
  EXPECT_EQ(now->third, 3);
}

TEST(VersionedStruct, ANewerCallerMayAskForNothingThatIsUnknown) {
  const auto newer = ReadSized(sizeof(Grown) + 16);
  ASSERT_TRUE(newer) << newer.error().ToString();
  EXPECT_EQ(newer->third, 3);
  struct Newer {
    Grown grown;
    int64_t fourth;
  } asks = {{sizeof(Newer), 1, 2, 3}, 4};
  const auto refused = ReadStruct(&asks.grown, kSize10, "grown");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().id, "usage.struct");
}

TEST(VersionedStruct, SizesThatNoVersionHadAreRefused) {
  for (const uint32_t size : {0U, 4U, 7U, 5000U, 0xFFFFFFFFU}) {
    const Grown grown = {size, 1, 2, 3};
    const auto refused = ReadStruct(&grown, kSize10, "grown");
    ASSERT_FALSE(refused) << size;
    EXPECT_EQ(refused.error().id, "usage.struct");
  }
  EXPECT_EQ(ReadStruct<Grown>(nullptr, kSize10, "grown").error().id, "usage.argument");
}

}  // namespace
}  // namespace rullama::c_api
