#include "core/base/keep_alive.h"

#include <gtest/gtest.h>

namespace rullama {
namespace {

TEST(KeepAliveTest, IsADurationAsGoWritesIt) {
  const struct {
    const char* text;
    std::optional<KeepAlive> value;
  } rows[] = {{"5m", std::chrono::minutes(5)},
              {"1h30m", std::chrono::minutes(90)},
              {"1.5s", std::chrono::milliseconds(1500)},
              {"300ms", std::chrono::milliseconds(300)},
              {"0", std::chrono::milliseconds(0)},
              {"0s", std::chrono::milliseconds(0)},
              {"-0", std::chrono::milliseconds(0)},
              {"300", std::chrono::minutes(5)},
              {"-1", kForEver},
              {"-1m", kForEver},
              {"99999999999999h", kForEver},
              {"", std::nullopt},
              {"-", std::nullopt},
              {"m", std::nullopt},
              {"5x", std::nullopt},
              {"1.2.3s", std::nullopt},
              {"5m ", std::nullopt},
              {"soon", std::nullopt}};
  for (const auto& row : rows) EXPECT_EQ(ParseKeepAlive(row.text), row.value) << row.text;
  EXPECT_EQ(KeepAliveOf(1e300), kForEver);
  EXPECT_EQ(KeepAliveOf(0.5), std::chrono::milliseconds(500));
}

TEST(KeepAliveTest, IsWrittenAsItIsRead) {
  const struct {
    KeepAlive value;
    const char* text;
  } rows[] = {{kForEver, "-1"},
              {KeepAlive(0), "0s"},
              {std::chrono::minutes(5), "5m"},
              {std::chrono::minutes(90), "1h30m"},
              {KeepAlive(61'500), "1m1s500ms"}};
  for (const auto& row : rows) {
    EXPECT_EQ(KeepAliveText(row.value), row.text);
    EXPECT_EQ(ParseKeepAlive(row.text), row.value);
  }
}

}  // namespace
}  // namespace rullama
