// The same assertions as C++20, and C against C++ row by row.
#include "tests/abi/abi_layout_test.c"  // NOLINT: compiled a second time on purpose

#include <gtest/gtest.h>

#include <string_view>

#include "tests/abi/layout_rows_agree.h"

namespace {

TEST(AbiLayout, CAndCxxAgree) { ExpectCAndCxxAgree(); }

// Structs of version 1.0 are full: a hole would be space whose content nobody defines.
TEST(AbiLayout, TheTableHasNoHoles) {
  size_t count = 0;
  const layout_row* rows = LayoutRowsCxx(&count);
  unsigned long long end = 0;
  unsigned long long members = 0;
  for (size_t i = 0; i < count; ++i) {
    const std::string_view name = rows[i].name;
    if (!name.starts_with("rl_plugin_v1.")) continue;
    EXPECT_EQ(rows[i].first, end) << name;
    end = rows[i].first + rows[i].second;
    ++members;
  }
  EXPECT_EQ(end, sizeof(rl_plugin_v1));
  EXPECT_EQ(members, 29U);
}

}  // namespace
