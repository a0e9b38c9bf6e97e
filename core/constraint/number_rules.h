// Texts of numbers: integers of at most 16 digits, fractions of at most 16, exponents of at most
// 2, never -0.
#pragma once

#include <optional>

#include "core/constraint/decimal.h"
#include "core/constraint/grammar.h"

namespace rullama::constraint {

struct NumberRange {
  bool integer = false;
  std::optional<Bound> min = {};
  std::optional<Bound> max = {};
};

// Leads from `from` to `to` by the numbers of a range. With a bound they have no exponents.
void AddNumbers(GrammarBuilder& builder, const NumberRange& range, StateId from, StateId to);

}  // namespace rullama::constraint
