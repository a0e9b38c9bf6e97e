// The same assertions as C++20, and C against C++ row by row.
#include "tests/c_api/layout_test.c"  // NOLINT: compiled a second time on purpose

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "tests/abi/layout_rows_agree.h"

namespace {

TEST(CApiLayout, CAndCxxAgree) { ExpectCAndCxxAgree(); }

// The table has each member, and there are no holes: they would be space whose content nobody
// defines, which a later version could not use.
TEST(CApiLayout, TheTableHasNoHoles) {
  size_t count = 0;
  const layout_row* rows = LayoutRowsCxx(&count);
  size_t structs = 0;
  for (size_t i = 0; i < count; ++i) {
    const std::string name = rows[i].name;
    if (name.starts_with("RULLAMA_") || name.find('.') != std::string::npos) continue;
    ++structs;
    unsigned long long end = 0;
    for (size_t member = i + 1; member < count; ++member) {
      if (!std::string_view(rows[member].name).starts_with(name + ".")) break;
      EXPECT_EQ(rows[member].first, end) << rows[member].name;
      end = rows[member].first + rows[member].second;
    }
    EXPECT_EQ(end, rows[i].first) << name;
  }
  EXPECT_EQ(structs, 12U);
}

}  // namespace
