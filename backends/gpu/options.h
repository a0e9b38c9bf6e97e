// The options that every GPU backend has, as rows of its table (sdk/options.h).
//
// Thread safety: none.
#pragma once

#include <rullama/sdk/options.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/gpu/weights.h"

namespace rullama::gpu {

// The values of these options.
struct CommonSettings {
  bool precise_products = false;
  bool profile = false;
  uint64_t weight_piece = 0;  // bytes of a piece of a weight, at most; 0: an allocation
  bool tune = false;          // TuneTiles() when the device is opened
};

// The target of the rows' readers, for a device of the facts `Facts`, which have `max_allocation`,
// in bytes.
template <typename Facts, typename DriverOptions>
struct OptionsOf {
  const Facts& facts;
  DriverOptions driver;
  CommonSettings common = {};
};

// The common rows, after those of a backend. `precise_products`: what these are on its devices.
template <typename Settings>
std::vector<sdk::OptionRow<Settings>> WithCommonRows(std::vector<sdk::OptionRow<Settings>> rows,
                                                     std::string_view precise_products) {
  using sdk::Option;
  rows.push_back({{"precise_products", "on, off", "off", precise_products},
                  [](Settings& settings, const Option& option) {
                    settings.common.precise_products = sdk::ParseSwitch(option);
                  }});
  rows.push_back({{"profile", "on, off", "off",
                   "times every dispatch and prints the times at the end; dispatches then run one "
                   "after the other"},
                  [](Settings& settings, const Option& option) {
                    settings.common.profile = sdk::ParseSwitch(option);
                  }});
  rows.push_back(
      {{"weight_piece", "4096 up to the bytes that one allocation of the device may have",
        "the latter", "bytes; a larger matrix of weights lies in pieces of whole rows"},
       [](Settings& settings, const Option& option) {
         settings.common.weight_piece =
             sdk::ParseCount(option, "bytes", kMinPiece, settings.facts.max_allocation);
       }});
  rows.push_back({{"tune", "on, off", "off",
                   "measures the tiles of products of many rows on matrix units when the device is "
                   "opened, and keeps their times for this device, driver and version; later runs "
                   "choose tiles by them, which changes the last bits of results"},
                  [](Settings& settings, const Option& option) {
                    settings.common.tune = sdk::ParseSwitch(option);
                  }});
  return rows;
}

// A switch for what only some devices have: on is an error unless it is `available`. The device has
// no `what`.
inline bool ParseSwitchFor(const sdk::Option& option, bool available, std::string_view what) {
  const bool on = sdk::ParseSwitch(option);
  if (on && !available) {
    sdk::RefuseOption(option, "but the device has no " + std::string(what));
  }
  return on;
}

// Whether a switch was switched on, not merely left as it is.
inline bool IsSwitchedOn(std::span<const sdk::Option> options, std::string_view name) {
  return std::ranges::any_of(options, [name](const sdk::Option& option) {
    return option.key == name && option.value == "on";
  });
}

}  // namespace rullama::gpu
