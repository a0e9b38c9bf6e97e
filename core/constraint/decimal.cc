#include "core/constraint/decimal.h"

#include <charconv>
#include <string_view>

namespace rullama::constraint {
namespace {

int Sign(int x) { return (x > 0) - (x < 0); }

}  // namespace

Decimal DecimalOf(const Json& number) {
  const std::string text = number.dump();  // [-]digits[.digits][e[+-]digits]
  std::string_view rest = text;
  Decimal decimal;
  decimal.negative = rest.starts_with('-');
  if (decimal.negative) rest.remove_prefix(1);
  const size_t e = rest.find('e');
  int exponent = 0;
  if (e != std::string_view::npos) {
    std::string_view digits = rest.substr(e + 1);
    if (digits.starts_with('+')) digits.remove_prefix(1);
    std::from_chars(digits.data(), digits.data() + digits.size(), exponent);
  }
  const std::string_view mantissa = rest.substr(0, e);
  const size_t point = std::min(mantissa.find('.'), mantissa.size());
  std::string digits(mantissa.substr(0, point));
  if (point < mantissa.size()) digits += mantissa.substr(point + 1);
  // The decimal point stands after `place` digits.
  int place = static_cast<int>(point) + exponent;
  if (place < 0) {
    digits.insert(0, static_cast<size_t>(-place), '0');
    place = 0;
  }
  if (static_cast<size_t>(place) > digits.size()) digits.resize(static_cast<size_t>(place), '0');
  decimal.whole = digits.substr(0, static_cast<size_t>(place));
  decimal.fraction = digits.substr(static_cast<size_t>(place));
  decimal.whole.erase(0, std::min(decimal.whole.find_first_not_of('0'), decimal.whole.size()));
  if (decimal.whole.empty()) decimal.whole = "0";
  decimal.fraction.erase(decimal.fraction.find_last_not_of('0') + 1);
  if (decimal.IsZero()) decimal.negative = false;
  return decimal;
}

int Compare(const Decimal& a, const Decimal& b) {
  if (a.negative != b.negative) return a.negative ? -1 : 1;
  const int sign = a.negative ? -1 : 1;
  if (a.whole.size() != b.whole.size()) return a.whole.size() < b.whole.size() ? -sign : sign;
  if (const int order = a.whole.compare(b.whole); order != 0) return sign * Sign(order);
  return sign * Sign(a.fraction.compare(b.fraction));
}

}  // namespace rullama::constraint
