// The handshake and the description of devices, below the C++ classes of the host.
#include <bit>
#include <cstring>
#include <span>
#include <string>

#include "conformance/suite.h"
#include "core/base/utf8.h"
#include "core/plugin/host_table.h"

namespace rullama::conformance {
namespace {

rl_error EmptyError() {
  rl_error error{};
  error.struct_size = sizeof(error);
  std::memset(error.message, 'x', sizeof(error.message));  // not terminated
  return error;
}

// An error text is terminated, not empty and UTF-8.
Status CheckText(const rl_error& error, std::string_view call) {
  const void* end = std::memchr(error.message, 0, sizeof(error.message));
  if (end == nullptr) return Failed("{}: the error text is not terminated", call);
  const std::string_view text(error.message);
  if (text.empty()) return Failed("{}: the error text is empty", call);
  if (FindInvalidUtf8(text)) return Failed("{}: the error text is not UTF-8", call);
  return OkStatus();
}

// Calls below the C++ classes, noted for reports of crashes.
int32_t Query(const Suite& suite, const rl_host_v1* host, const rl_plugin_v1** table,
              rl_error* error) {
  return CallPlugin(suite.plugin->name(), RL_PLUGIN_QUERY_NAME, suite.query, host, table, error);
}
int32_t Open(const Suite& suite, uint32_t index, std::span<const rl_option> options,
             rl_device** device, rl_error* error) {
  const rl_plugin_v1& table = suite.plugin->table();
  return CallPlugin(suite.plugin->name(), "device_open", table.device_open, table.context, index,
                    options.data(), static_cast<uint32_t>(options.size()), device, error);
}
void Close(const Suite& suite, rl_device* device) {
  CallPlugin(suite.plugin->name(), "device_close", suite.plugin->table().device_close, device);
}

Status RefusesAnotherMajor(Suite& suite, Device&) {
  const rl_host_v1* real =
      PluginHost::MakeTable(std::make_shared<PluginHost>(HostOptions{}), "conformance");
  for (const uint16_t major : {uint16_t{0}, uint16_t{99}}) {
    rl_host_v1 host = *real;
    host.abi_major = major;
    const rl_plugin_v1* table = nullptr;
    rl_error error = EmptyError();
    const int32_t code = Query(suite, &host, &table, &error);
    if (code == RL_OK) return Failed("a host of ABI {}.0 was accepted", major);
    RL_RETURN_IF_ERROR(CheckText(error, "query"));
  }
  return OkStatus();
}

// A host of a later minor version hands out a larger table.
Status AcceptsALaterMinor(Suite& suite, Device&) {
  const rl_host_v1* real =
      PluginHost::MakeTable(std::make_shared<PluginHost>(HostOptions{}), "conformance");
  struct Later {
    rl_host_v1 host;
    void* more[4];
  };
  static Later later;  // as long as the process: the plugin may keep it
  later.host = *real;
  later.host.struct_size = sizeof(Later);
  later.host.abi_minor = RL_ABI_MINOR + 1;
  const rl_plugin_v1* table = nullptr;
  rl_error error = EmptyError();
  if (Query(suite, &later.host, &table, &error) != RL_OK || table == nullptr) {
    return Failed("a host of ABI {}.{} was refused: {}", RL_ABI_MAJOR, later.host.abi_minor,
                  error.message);
  }
  return OkStatus();
}

Status TableIsComplete(Suite& suite, Device&) {
  const rl_plugin_v1& table = suite.plugin->table();
  if (table.abi_major != RL_ABI_MAJOR) return Failed("abi_major is {}", table.abi_major);
  if (suite.plugin->version().empty()) return Failed("the version is empty");
  if (suite.plugin->vendor().empty()) return Failed("the vendor is empty");
  return OkStatus();
}

Status DevicesAreDescribed(Suite& suite, Device&) {
  RL_ASSIGN_OR_RETURN(const auto list, suite.plugin->ListDevices());
  for (const DeviceDescription& device : list.devices) {
    if (device.name.empty()) return Failed("a device has no name");
    if (!std::has_single_bit(device.alignment)) {
      return Failed("the alignment of '{}' is {}, no power of two", device.name, device.alignment);
    }
    if (device.max_buffer_bytes == 0) return Failed("max_buffer_bytes of '{}' is 0", device.name);
  }
  return OkStatus();
}

Status NoSuchDevice(Suite& suite, Device&) {
  const rl_plugin_v1& table = suite.plugin->table();
  rl_str reason{};
  const uint32_t count =
      CallPlugin(suite.plugin->name(), "device_count", table.device_count, table.context, &reason);
  rl_device* device = nullptr;
  rl_error error = EmptyError();
  if (Open(suite, count + 5, {}, &device, &error) == RL_OK) {
    Close(suite, device);
    return Failed("device {} of {} was opened", count + 5, count);
  }
  return CheckText(error, "device_open");
}

Status UnknownOption(Suite& suite, Device&) {
  constexpr std::string_view kKey = "no_such_option";
  const rl_option option = {{kKey.data(), kKey.size()}, {"1", 1}};
  rl_device* device = nullptr;
  rl_error error = EmptyError();
  const int32_t code = Open(suite, suite.device_index, {&option, 1}, &device, &error);
  if (code == RL_OK) {
    Close(suite, device);
    return Failed("an unknown option was taken");
  }
  RL_RETURN_IF_ERROR(CheckText(error, "device_open"));
  if (code != RL_INVALID_ARGUMENT) {
    return Failed("the code is {}, expected RL_INVALID_ARGUMENT ({})", code, error.message);
  }
  if (std::string_view(error.message).find(kKey) == std::string_view::npos) {
    return Failed("the text does not name the option: {}", error.message);
  }
  // Those that the plugin was opened with, and those that it describes.
  RL_ASSIGN_OR_RETURN(const std::vector<OptionDescription> described, suite.plugin->ListOptions());
  std::vector<std::string> known;
  known.reserve(suite.options.size() + described.size());
  for (const auto& [name, value] : suite.options) known.push_back(name);
  for (const OptionDescription& each : described) known.push_back(each.name);
  for (const std::string& name : known) {
    if (std::string_view(error.message).find(name) == std::string_view::npos) {
      return Failed("the text does not list the known option '{}': {}", name, error.message);
    }
  }
  return OkStatus();
}

// A plugin that describes its options leaves none out.
Status OptionsAreDescribed(Suite& suite, Device&) {
  if (suite.plugin->table().options_describe == nullptr) {
    return Unsupported("the plugin has no options_describe");
  }
  RL_ASSIGN_OR_RETURN(const std::vector<OptionDescription> described, suite.plugin->ListOptions());
  for (const auto& [name, value] : suite.options) {
    if (std::ranges::find(described, name, &OptionDescription::name) == described.end()) {
      return Failed("the option '{}' of this run is not described", name);
    }
  }
  return OkStatus();
}

}  // namespace

void AddContractTests(std::vector<NamedTest>& tests) {
  tests.push_back({"Contract.refuses_a_host_of_another_major", RefusesAnotherMajor});
  tests.push_back({"Contract.accepts_a_host_of_a_later_minor", AcceptsALaterMinor});
  tests.push_back({"Contract.table_is_complete", TableIsComplete});
  tests.push_back({"Contract.devices_are_described", DevicesAreDescribed});
  tests.push_back({"Contract.device_that_is_not_there", NoSuchDevice});
  tests.push_back({"Contract.unknown_option_is_named", UnknownOption});
  tests.push_back({"Contract.options_are_described", OptionsAreDescribed});
}

}  // namespace rullama::conformance
