#include "core/base/from_chars.h"

#include <gtest/gtest.h>

#include <charconv>
#include <string>
#include <string_view>
#include <system_error>

namespace rullama {
namespace {

constexpr std::string_view kTexts[] = {"0",
                                       "-0",
                                       "1",
                                       "-1.5",
                                       "12.25rest",
                                       ".5",
                                       "5.",
                                       "1e3",
                                       "1e+3",
                                       "1e-3",
                                       "1e",
                                       "1e+",
                                       "1e5x",
                                       "+1",
                                       " 1",
                                       "",
                                       "-",
                                       ".",
                                       "-.e1",
                                       "0x10",
                                       "1e400",
                                       "-1e400",
                                       "1e-99",
                                       "1e-400",
                                       "0e400",
                                       "0.1",
                                       "3.4e38",
                                       "1.17549e-38",
                                       "16777217",
                                       "e1",
                                       "1.2.3",
                                       "--1",
                                       "0000.50",
                                       "123456789012345678901234567890",
                                       "9007199254740993"};

// Where the number ends, its value if there is one, and what is wrong otherwise.
template <typename T>
void ExpectTheLibrarysAnswer() {
  for (const std::string_view text : kTexts) {
    T expected = 7;
    T found = 7;
    const char* const end = text.data() + text.size();
    const auto by_library = std::from_chars(text.data(), end, expected);
    const auto by_c = RealFromChars(text.data(), end, found);
    EXPECT_EQ(by_c.ptr - text.data(), by_library.ptr - text.data()) << text;
    EXPECT_EQ(by_c.ec, by_library.ec) << text;
    EXPECT_EQ(found, expected) << text;
  }
}

TEST(RealFromChars, DoesWhatTheLibraryDoes) {
  ExpectTheLibrarysAnswer<float>();
  ExpectTheLibrarysAnswer<double>();
}

TEST(RealFromChars, KnowsFiniteNumbersAlone) {
  for (const std::string_view text : {"inf", "nan", "-infinity"}) {
    double value = 7;
    const auto result = RealFromChars(text.data(), text.data() + text.size(), value);
    EXPECT_EQ(result.ec, std::errc::invalid_argument) << text;
    EXPECT_EQ(value, 7) << text;
  }
}

}  // namespace
}  // namespace rullama
