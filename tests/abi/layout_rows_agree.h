// C against C++, row by row. Included after layout_rows.h.
#pragma once

#include <gtest/gtest.h>

inline void ExpectCAndCxxAgree() {
  size_t c_count = 0;
  size_t cxx_count = 0;
  const layout_row* c = LayoutRowsC(&c_count);
  const layout_row* cxx = LayoutRowsCxx(&cxx_count);
  ASSERT_EQ(c_count, cxx_count);
  for (size_t i = 0; i < c_count; ++i) {
    EXPECT_STREQ(c[i].name, cxx[i].name);
    EXPECT_EQ(c[i].first, cxx[i].first) << c[i].name;
    EXPECT_EQ(c[i].second, cxx[i].second) << c[i].name;
  }
}
