// The options of a backend as one table, from which Backend::Open reads them, errors list them, and
// Backend::Options shows them.
//
//   const sdk::OptionRow<Settings> kOptions[] = {
//       {{"cache", "on, off", "on", "keep compiled kernels on disk"},
//        [](Settings& settings, const sdk::Option& option) {
//          settings.cache = sdk::ParseSwitch(option);
//        }}};
//
// Errors: Error(RL_INVALID_ARGUMENT), which names the option, what was found and what was expected.
#pragma once

#include <rullama/sdk/backend.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace rullama::sdk {

// `Settings`: what options are read into.
template <typename Settings>
struct OptionRow {
  OptionInfo info;
  // Takes the value, or throws.
  void (*read)(Settings& settings, const Option& option);
};

[[noreturn]] inline void RefuseOption(const Option& option, const std::string& problem) {
  throw Error(RL_INVALID_ARGUMENT,
              "option " + option.key + " is '" + option.value + "', " + problem);
}

inline bool ParseSwitch(const Option& option) {
  if (option.value != "on" && option.value != "off") RefuseOption(option, "expected on or off");
  return option.value == "on";
}

// A number from `least` to `most`. `unit`: what it counts, for the error.
inline uint64_t ParseCount(const Option& option, const std::string& unit, uint64_t least,
                           uint64_t most) {
  uint64_t count = 0;
  const char* end = option.value.data() + option.value.size();
  const auto [stop, error] = std::from_chars(option.value.data(), end, count);
  if (error == std::errc() && stop == end && count >= least && count <= most) return count;
  RefuseOption(option, "expected " + unit + " from " + std::to_string(least) + " to " +
                           std::to_string(most));
}

// Reads the options in order. Errors: for an option without a row, with the names of all rows.
template <typename Settings>
void ReadOptions(std::string_view backend, std::span<const OptionRow<Settings>> rows,
                 std::span<const Option> options, Settings& settings) {
  for (const Option& option : options) {
    const auto row = std::find_if(rows.begin(), rows.end(), [&](const OptionRow<Settings>& known) {
      return known.info.name == option.key;
    });
    if (row != rows.end()) {
      row->read(settings, option);
      continue;
    }
    std::string names;
    for (const OptionRow<Settings>& known : rows) {
      names += (names.empty() ? "" : ", ") + std::string(known.info.name);
    }
    throw Error(RL_INVALID_ARGUMENT, "unknown option '" + option.key + "'; the " +
                                         std::string(backend) + " backend knows: " + names);
  }
}

template <typename Settings>
std::vector<OptionInfo> InfosOf(std::span<const OptionRow<Settings>> rows) {
  std::vector<OptionInfo> infos;
  infos.reserve(rows.size());
  for (const OptionRow<Settings>& row : rows) infos.push_back(row.info);
  return infos;
}

}  // namespace rullama::sdk
