#include "backends/gpu/options.h"

#include <algorithm>
#include <charconv>
#include <system_error>
#include <utility>

#include "backends/gpu/weights.h"

namespace rullama::gpu {
namespace {

bool ParseSwitch(const sdk::Option& option) {
  if (option.value == "on") return true;
  if (option.value == "off") return false;
  RefuseOption(option, "expected on or off");
}

uint64_t ParseBytes(const sdk::Option& option, uint64_t least, uint64_t most) {
  uint64_t bytes = 0;
  const char* end = option.value.data() + option.value.size();
  const auto [stop, error] = std::from_chars(option.value.data(), end, bytes);
  if (error == std::errc() && stop == end && bytes >= least && bytes <= most) return bytes;
  RefuseOption(option,
               "expected bytes from " + std::to_string(least) + " to " + std::to_string(most));
}

}  // namespace

void RefuseOption(const sdk::Option& option, const std::string& problem) {
  throw sdk::Error(RL_INVALID_ARGUMENT,
                   "option " + option.key + " is '" + option.value + "', " + problem);
}

bool IsSwitchedOn(std::span<const sdk::Option> options, std::string_view name) {
  return std::ranges::any_of(options, [name](const sdk::Option& option) {
    return option.key == name && option.value == "on";
  });
}

Options::Options(std::string backend, CommonSettings& common, uint64_t max_allocation)
    : backend_(std::move(backend)) {
  AddSwitch("precise_products", common.precise_products);
  AddSwitch("profile", common.profile);
  Add("weight_piece", [&common, max_allocation](const sdk::Option& option) {
    common.weight_piece = ParseBytes(option, kMinPiece, max_allocation);
  });
}

void Options::AddSwitch(const std::string& name, bool& value) {
  Add(name, [&value](const sdk::Option& option) { value = ParseSwitch(option); });
}

void Options::AddSwitch(const std::string& name, bool& value, bool available,
                        const std::string& what) {
  Add(name, [&value, available, what](const sdk::Option& option) {
    value = ParseSwitch(option);
    if (value && !available) RefuseOption(option, "but the device has no " + what);
  });
}

void Options::Read(std::span<const sdk::Option> options) const {
  for (const sdk::Option& option : options) {
    const auto found = readers_.find(option.key);
    if (found != readers_.end()) {
      found->second(option);
      continue;
    }
    std::string names;
    for (const auto& [name, read] : readers_) names += (names.empty() ? "" : ", ") + name;
    throw sdk::Error(RL_INVALID_ARGUMENT, "unknown option '" + option.key + "'; the " + backend_ +
                                              " backend knows: " + names);
  }
}

}  // namespace rullama::gpu
