#include "core/diff/bisect.h"

#include <gtest/gtest.h>

#include <set>

namespace rullama {
namespace {

// The first op of a graph of `count` whose wrong ones are these, and how often it asked.
std::optional<size_t> Find(size_t count, const std::set<size_t>& wrong, size_t* asked = nullptr) {
  size_t calls = 0;
  const auto found = FindFirstBadOp(count, [&](size_t k) -> Result<bool> {
    ++calls;
    return !wrong.empty() && *wrong.begin() < k;
  });
  EXPECT_TRUE(found.has_value());
  if (asked != nullptr) *asked = calls;
  return *found;
}

TEST(BisectTest, FindsEveryOpOfEverySize) {
  for (size_t count = 1; count < 40; ++count) {
    for (size_t op = 0; op < count; ++op) EXPECT_EQ(Find(count, {op}), op);
  }
}

TEST(BisectTest, SeveralWrongOpsGiveTheFirst) { EXPECT_EQ(Find(100, {37, 80, 99}), 37); }

TEST(BisectTest, NothingWrong) {
  EXPECT_EQ(Find(100, {}), std::nullopt);
  EXPECT_EQ(Find(0, {}), std::nullopt);
}

TEST(BisectTest, AsksLogarithmicallyOften) {
  size_t asked = 0;
  Find(1000, {512}, &asked);
  EXPECT_LE(asked, 11U);
}

TEST(BisectTest, ErrorsPassThrough) {
  const auto found = FindFirstBadOp(9, [](size_t) -> Result<bool> {
    return MakeError(ErrorKind::kBackend, "device.lost", "gone");
  });
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().id, "device.lost");
}

}  // namespace
}  // namespace rullama
