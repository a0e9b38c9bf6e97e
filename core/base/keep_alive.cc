#include "core/base/keep_alive.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <system_error>

#include "core/base/from_chars.h"

namespace rullama {
namespace {

constexpr double kMaxSeconds = 100.0 * 365 * 86'400;

struct Unit {
  std::string_view name;
  double seconds;
};
// Names that begin with another name come first.
constexpr std::array<Unit, 7> kUnits = {{{"ns", 1e-9},
                                         {"us", 1e-6},
                                         {"\xC2\xB5s", 1e-6},
                                         {"ms", 1e-3},
                                         {"s", 1},
                                         {"m", 60},
                                         {"h", 3600}}};

// The number at the start of `text`, which is cut off; nothing if there is none.
std::optional<double> TakeNumber(std::string_view& text) {
  const size_t length = std::min(text.find_first_not_of("0123456789."), text.size());
  double number = 0;
  const auto [end, fault] = FromChars(text.data(), text.data() + length, number);
  if (fault != std::errc() || end != text.data() + length) return std::nullopt;
  text.remove_prefix(length);
  return number;
}

// The sum of "1h", "30m", ...; nothing if `text` is not such a sum.
std::optional<double> SumOf(std::string_view text) {
  double sum = 0;
  while (!text.empty()) {
    const auto number = TakeNumber(text);
    const auto* unit = std::find_if(kUnits.begin(), kUnits.end(),
                                    [text](const Unit& one) { return text.starts_with(one.name); });
    if (!number || unit == kUnits.end()) return std::nullopt;
    sum += *number * unit->seconds;
    text.remove_prefix(unit->name.size());
  }
  return sum;
}

}  // namespace

KeepAlive KeepAliveOf(double seconds) {
  if (!(seconds >= 0) || seconds > kMaxSeconds) return kForEver;
  return KeepAlive(static_cast<int64_t>(std::ceil(seconds * 1000)));
}

std::optional<KeepAlive> ParseKeepAlive(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  if (text.empty()) return std::nullopt;
  std::string_view rest = text;
  std::optional<double> seconds = TakeNumber(rest);
  if (!seconds || !rest.empty()) seconds = SumOf(text);
  if (!seconds) return std::nullopt;
  return KeepAliveOf(negative && *seconds > 0 ? -1 : *seconds);
}

std::string KeepAliveText(KeepAlive keep) {
  if (keep < KeepAlive(0)) return "-1";
  const struct {
    const char* name;
    int64_t milliseconds;
  } units[] = {{"h", 3'600'000}, {"m", 60'000}, {"s", 1000}, {"ms", 1}};
  std::string text;
  int64_t rest = keep.count();
  for (const auto& unit : units) {
    if (rest >= unit.milliseconds) text += fmt::format("{}{}", rest / unit.milliseconds, unit.name);
    rest %= unit.milliseconds;
  }
  return text.empty() ? "0s" : text;
}

}  // namespace rullama
