// Numbers of schemas as decimal digits, so that ranges of texts follow from them exactly.
#pragma once

#include <optional>
#include <string>

#include "core/constraint/json_text.h"

namespace rullama::constraint {

struct Decimal {
  bool negative = false;    // never of zero
  std::string whole = "0";  // without leading zeros
  std::string fraction;     // without trailing zeros

  [[nodiscard]] bool IsZero() const { return whole == "0" && fraction.empty(); }
};

// `number` is a JSON number.
Decimal DecimalOf(const Json& number);

// Below, above or equal to zero, as a is less than, greater than or equal to b.
int Compare(const Decimal& a, const Decimal& b);

// An end of a range of numbers.
struct Bound {
  Decimal value;
  bool exclusive = false;
};

}  // namespace rullama::constraint
