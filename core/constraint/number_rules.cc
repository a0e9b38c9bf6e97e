#include "core/constraint/number_rules.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>

namespace rullama::constraint {
namespace {

constexpr size_t kMaxWholeDigits = 16;
constexpr size_t kMaxFractionDigits = 16;

struct DigitPlace {
  bool fraction = false;
  size_t digits = 0;  // in all of the whole part, or so far of the fraction
  size_t at = 0;      // digits so far of the whole part
  bool at_min = false;
  bool at_max = false;

  using Key = std::tuple<bool, size_t, size_t, bool, bool>;
  [[nodiscard]] Key key() const {
    // How a free state continues depends only on the number of digits left.
    const bool free = !fraction && !at_min && !at_max && at > 0;
    return {fraction, free ? digits - at : digits, free ? size_t{1} << 10U : at, at_min, at_max};
  }
};

// Numbers without a sign in a range, digit by digit. While the digits so far are those of a bound,
// they are `at_min` or `at_max`, and the next one is compared with the bound's.
class MagnitudeRules {
 public:
  MagnitudeRules(GrammarBuilder& builder, const NumberRange& range, bool exponents, StateId to)
      : builder_(builder), range_(range), exponents_(exponents), to_(to) {}

  void Add(StateId from) {
    for (size_t digits = 1; digits <= kMaxWholeDigits; ++digits) {
      const size_t min_digits = range_.min ? range_.min->value.whole.size() : 0;
      const size_t max_digits = range_.max ? range_.max->value.whole.size() : kMaxWholeDigits + 1;
      if (digits < min_digits || digits > max_digits) continue;
      builder_.AddEpsilon(from, Whole({.digits = digits,
                                       .at_min = digits == min_digits,
                                       .at_max = digits == max_digits}));
    }
  }

 private:
  // The state before a digit of the whole part, or after the last one.
  StateId Whole(const DigitPlace& place) {
    if (place.at == place.digits) {
      return Fraction({.fraction = true, .at_min = place.at_min, .at_max = place.at_max});
    }
    const auto [found, is_new] = states_.try_emplace(place.key(), 0);
    if (!is_new) return found->second;
    const StateId state = found->second = builder_.AddState();
    const bool no_zero = place.at == 0 && place.digits > 1;
    AddDigits(state, place, no_zero ? '1' : '0', DigitOf(range_.min, place, &Decimal::whole),
              DigitOf(range_.max, place, &Decimal::whole));
    return state;
  }

  // The state after the whole part and some digits of the fraction.
  StateId Fraction(const DigitPlace& place) {
    const auto [found, is_new] = states_.try_emplace(place.key(), 0);
    if (!is_new) return found->second;
    const StateId state = found->second = builder_.AddState();
    if (MayEnd(place)) builder_.AddEpsilon(state, to_);
    if (exponents_ && !place.at_min && !place.at_max) AddExponent(state);
    if (range_.integer || place.digits == kMaxFractionDigits) return state;
    StateId digits = state;
    if (place.digits == 0) {
      digits = builder_.AddState();
      builder_.AddEdge(state, '.', digits);
    }
    AddDigits(digits, place, '0', DigitOf(range_.min, place, &Decimal::fraction),
              DigitOf(range_.max, place, &Decimal::fraction));
    return state;
  }

  void AddDigits(StateId from, const DigitPlace& place, char first, char min, char max) {
    for (char digit = first; digit <= '9'; ++digit) {
      if ((place.at_min && digit < min) || (place.at_max && digit > max)) continue;
      DigitPlace next = place;
      ++(place.fraction ? next.digits : next.at);
      next.at_min = place.at_min && digit == min;
      next.at_max = place.at_max && digit == max;
      builder_.AddEdge(from, static_cast<uint8_t>(digit),
                       place.fraction ? Fraction(next) : Whole(next));
    }
  }

  static char DigitOf(const std::optional<Bound>& bound, const DigitPlace& place,
                      std::string Decimal::*part) {
    if (!bound) return '0';
    const std::string& digits = bound->value.*part;
    const size_t at = place.fraction ? place.digits : place.at;
    return at < digits.size() ? digits[at] : '0';
  }

  // Whether the number so far is in the range.
  [[nodiscard]] bool MayEnd(const DigitPlace& place) const {
    if (place.at_min) {
      const bool equal = range_.min->value.fraction.size() <= place.digits;
      if (!equal || range_.min->exclusive) return false;
    }
    if (!place.at_max) return true;
    const bool equal = range_.max->value.fraction.size() <= place.digits;
    return !equal || !range_.max->exclusive;
  }

  void AddExponent(StateId from) {
    if (!exponent_) {
      exponent_ = builder_.AddState();
      const StateId sign = builder_.AddState();
      builder_.AddEdge(*exponent_, 'e', sign);
      builder_.AddEdge(*exponent_, 'E', sign);
      const StateId digits = builder_.AddState();
      builder_.AddEpsilon(sign, digits);
      builder_.AddEdge(sign, '+', digits);
      builder_.AddEdge(sign, '-', digits);
      const StateId one = builder_.AddState();
      builder_.AddEdge(digits, '0', '9', one);
      builder_.AddEdge(one, '0', '9', to_);
      builder_.AddEpsilon(one, to_);
    }
    builder_.AddEpsilon(from, *exponent_);
  }

  GrammarBuilder& builder_;
  const NumberRange& range_;
  bool exponents_;
  StateId to_;
  std::optional<StateId> exponent_;
  std::map<DigitPlace::Key, StateId> states_;
};

// The bound of the opposite numbers.
Bound Opposite(Bound bound) {
  bound.value.negative = !bound.value.negative && !bound.value.IsZero();
  return bound;
}

}  // namespace

void AddNumbers(GrammarBuilder& builder, const NumberRange& range, StateId from, StateId to) {
  const bool exponents = !range.integer && !range.min && !range.max;
  const auto is_below_zero = [](const Bound& bound) { return bound.value.negative; };
  const auto is_above_zero = [](const Bound& bound) {
    return !bound.value.negative && !bound.value.IsZero();
  };
  if (!range.max || !is_below_zero(*range.max)) {
    NumberRange positive = range;
    if (range.min && is_below_zero(*range.min)) positive.min.reset();
    MagnitudeRules(builder, positive, exponents, to).Add(from);
  }
  if (!range.min || is_below_zero(*range.min)) {
    const Bound below_zero{.value = {}, .exclusive = true};
    NumberRange negative{.integer = range.integer};
    const bool has_max = range.max && !is_above_zero(*range.max);
    negative.min = has_max && is_below_zero(*range.max) ? Opposite(*range.max) : below_zero;
    if (range.min) negative.max = Opposite(*range.min);
    const StateId sign = builder.AddState();
    builder.AddEdge(from, '-', sign);
    MagnitudeRules(builder, negative, exponents, to).Add(sign);
  }
}

}  // namespace rullama::constraint
