#include "core/constraint/formats.h"

#include <algorithm>
#include <array>

namespace rullama::constraint {
namespace {

struct FormatShape {
  std::string_view name;
  std::string_view pattern;
};

// Days that every year has, of years with four digits.
#define RL_DATE                                                     \
  "[1-9][0-9]{3}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|" \
  "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
#define RL_TIME                                                  \
  "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,6})?" \
  "(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
#define RL_LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,30}[A-Za-z0-9])?"
#define RL_OCTET "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define RL_HEX "[0-9A-Fa-f]{1,4}"

constexpr auto kFormats = std::to_array<FormatShape>({
    {"date", "^" RL_DATE "$"},
    {"time", "^" RL_TIME "$"},
    {"date-time", "^" RL_DATE "T" RL_TIME "$"},
    {"uuid", "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"},
    {"email",
     "^[A-Za-z0-9_+-]{1,32}(?:\\.[A-Za-z0-9_+-]{1,32})?@(?:" RL_LABEL "\\.){1,3}[A-Za-z]{2,12}$"},
    {"ipv4", "^(?:" RL_OCTET "\\.){3}" RL_OCTET "$"},
    {"ipv6", "^(?:(?:" RL_HEX ":){7}" RL_HEX "|(?:" RL_HEX ":){1,6}:" RL_HEX "|::1?)$"},
    {"hostname", "^" RL_LABEL "(?:\\." RL_LABEL "){0,3}$"},
    {"uri",
     "^[a-z][a-z0-9+.-]{0,15}://[A-Za-z0-9](?:[A-Za-z0-9.-]{0,62}[A-Za-z0-9])?(?::[0-9]{1,4})?"
     "(?:/[A-Za-z0-9._~!$&'()*+,;=:@-]*)*(?:\\?[A-Za-z0-9._~!$&'()*+,;=:@/?-]*)?"
     "(?:#[A-Za-z0-9._~!$&'()*+,;=:@/?-]*)?$"},
});

#undef RL_DATE
#undef RL_TIME
#undef RL_LABEL
#undef RL_OCTET
#undef RL_HEX

}  // namespace

std::optional<std::string_view> FormatPattern(std::string_view format) {
  const auto* const found = std::ranges::find(kFormats, format, &FormatShape::name);
  if (found == kFormats.end()) return std::nullopt;
  return found->pattern;
}

}  // namespace rullama::constraint
