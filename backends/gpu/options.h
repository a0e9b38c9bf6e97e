// The options of a GPU backend as a table: what is in it is read, and all else is refused with the
// list of what there is.
//
// Thread safety: none.
#pragma once

#include <rullama/sdk/backend.h>

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace rullama::gpu {

// The values of the options that every GPU backend has.
struct CommonSettings {
  bool precise_products = false;
  bool profile = false;
  uint64_t weight_piece = 0;  // bytes of a piece of a weight, at most; 0: an allocation
};

class Options {
 public:
  // Takes a value, or throws sdk::Error(RL_INVALID_ARGUMENT) that says what was expected.
  using Reader = std::function<void(const sdk::Option& option)>;

  // `backend`: its name. `common`: set by what is read. `max_allocation`: bytes.
  Options(std::string backend, CommonSettings& common, uint64_t max_allocation);

  void Add(const std::string& name, Reader read) { readers_[name] = std::move(read); }
  // A switch, which sets `value`.
  void AddSwitch(const std::string& name, bool& value);
  // A switch for what only some devices have: on is an error unless it is `available`. The device
  // has no `what`.
  void AddSwitch(const std::string& name, bool& value, bool available, const std::string& what);

  // Reads them in order. Errors: RL_INVALID_ARGUMENT for an option that is not in the table.
  void Read(std::span<const sdk::Option> options) const;

 private:
  std::string backend_;
  std::map<std::string, Reader, std::less<>> readers_;
};

// Errors: RL_INVALID_ARGUMENT that names the option and its value.
[[noreturn]] void RefuseOption(const sdk::Option& option, const std::string& problem);
// Whether a switch was switched on, not merely left as it is.
bool IsSwitchedOn(std::span<const sdk::Option> options, std::string_view name);

}  // namespace rullama::gpu
