#include "core/base/from_chars.h"

#include <locale.h>
#include <stdlib.h>

#include <cmath>
#include <string>
#include <system_error>

#include "core/base/check.h"

namespace rullama {
namespace {

const char* SkipDigits(const char* at, const char* last) {
  while (at != last && *at >= '0' && *at <= '9') ++at;
  return at;
}

// The end of the number at `first`; `first` if there is none.
const char* EndOfReal(const char* first, const char* last) {
  const char* const begin = first != last && *first == '-' ? first + 1 : first;
  const char* end = SkipDigits(begin, last);
  auto digits = end - begin;
  if (end != last && *end == '.') {
    const char* const fraction = end + 1;
    end = SkipDigits(fraction, last);
    digits += end - fraction;
  }
  if (digits == 0) return first;
  if (end == last || (*end != 'e' && *end != 'E')) return end;
  const char* exponent = end + 1;
  if (exponent != last && (*exponent == '-' || *exponent == '+')) ++exponent;
  const char* const exponent_end = SkipDigits(exponent, last);
  return exponent_end == exponent ? end : exponent_end;
}

// The locale in which numbers have a '.', whatever the program has set.
locale_t LocaleOfC() {
  static const locale_t kLocale = ::newlocale(LC_ALL_MASK, "C", nullptr);
  RL_CHECK(kLocale != nullptr);
  return kLocale;
}

float ToReal(const std::string& text, float /*type*/) {
  return ::strtof_l(text.c_str(), nullptr, LocaleOfC());
}
double ToReal(const std::string& text, double /*type*/) {
  return ::strtod_l(text.c_str(), nullptr, LocaleOfC());
}

}  // namespace

template <std::floating_point T>
std::from_chars_result RealFromChars(const char* first, const char* last, T& value) {
  const char* const end = EndOfReal(first, last);
  if (end == first) return {first, std::errc::invalid_argument};
  const std::string text(first, end);
  const T parsed = ToReal(text, T{});
  // Too large, or too small for every number but 0.
  const bool has_digit =
      text.substr(0, text.find_first_of("eE")).find_first_of("123456789") != std::string::npos;
  if (std::isinf(parsed) || (parsed == 0 && has_digit)) {
    return {end, std::errc::result_out_of_range};
  }
  value = parsed;
  return {end, std::errc{}};
}

template std::from_chars_result RealFromChars(const char*, const char*, float&);
template std::from_chars_result RealFromChars(const char*, const char*, double&);

}  // namespace rullama
