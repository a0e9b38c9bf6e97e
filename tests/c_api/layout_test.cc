// The same assertions as C++20, and C against C++ row by row.
#include "tests/c_api/layout_test.c"  // NOLINT: compiled a second time on purpose

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tests/abi/layout_rows_agree.h"

namespace {

TEST(CApiLayout, CAndCxxAgree) { ExpectCAndCxxAgree(); }

// The table has each member, and there are no holes: they would be space whose content nobody
// defines, which a later version could not use.
TEST(CApiLayout, TheTableHasNoHoles) {
  size_t count = 0;
  const layout_row* rows = LayoutRowsCxx(&count);
  std::map<std::string, unsigned long long> sizes;
  std::map<std::string, unsigned long long> ends;  // of the last members so far
  for (size_t i = 0; i < count; ++i) {
    const std::string name = rows[i].name;
    if (name.starts_with("RULLAMA_")) continue;
    const size_t dot = name.find('.');
    if (dot == std::string::npos) {
      sizes[name] = rows[i].first;
      continue;
    }
    unsigned long long& end = ends[name.substr(0, dot)];
    EXPECT_EQ(rows[i].first, end) << name;
    end = rows[i].first + rows[i].second;
  }
  EXPECT_EQ(ends, sizes);
  EXPECT_EQ(sizes.size(), 15U);
}

}  // namespace
