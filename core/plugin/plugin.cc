#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "core/plugin/call_status.h"
#include "core/plugin/device.h"
#include "core/plugin/handshake.h"
#include "core/plugin/loader.h"
#include "core/plugin/records.h"

namespace rullama {
namespace {

// No machine has this many; a count above it is an uninitialised variable.
constexpr uint32_t kMaxDevices = 1024;
// No list that people read is as long.
constexpr size_t kMaxOptions = 1024;

// "librullama_backend_cpu.so" -> "cpu"; other names without their extension. Tags log lines from
// the moment of loading, before the plugin says its name.
std::string ComponentOf(std::string_view origin) {
  std::string stem = std::filesystem::path(origin).stem().string();
  constexpr std::string_view kPrefix = "librullama_backend_";
  if (stem.starts_with(kPrefix)) stem.erase(0, kPrefix.size());
  return stem;
}

// The number of users in this process of what a query function returned: the same instance, however
// often it is asked. The mutex is held while an instance comes to life or shuts down.
struct Uses {
  std::mutex mutex;
  std::map<rl_plugin_query_fn, int> counts;
};
// Never freed: plugins may be given up while static objects are destroyed.
Uses& AllUses() {
  static Uses* const kUses = new Uses;
  return *kUses;
}

// What a call is about, for a message: " of weight 'x'", " of 'decode' with 35 matmul", or nothing.
std::string SubjectOf(const WatchedCall& call) {
  if (call.graph != nullptr) {
    return fmt::format(" of '{}' with {}", call.graph->name, DescribeOps(*call.graph));
  }
  return call.object.empty() ? std::string() : fmt::format(" of weight '{}'", call.object);
}

// The options of a plugin, and the fault of the first invalid record.
struct OptionsReader {
  std::vector<OptionDescription> options;
  std::string wrong;
};

// Returns the fault of a record, or an empty text.
std::string CheckOption(const OptionDescription& option,
                        const std::vector<OptionDescription>& before) {
  if (option.name.empty()) return "without a name";
  if (std::ranges::find(before, option.name, &OptionDescription::name) != before.end()) {
    return fmt::format("of '{}' a second time", option.name);
  }
  if (option.values.empty()) return fmt::format("of '{}' without values", option.name);
  if (before.size() == kMaxOptions) return fmt::format("more, expected at most {}", kMaxOptions);
  return {};
}

// Takes the records that a plugin passes to `sink`, an OptionsReader.
void TakeOptions(void* sink, const rl_option_info* options, uint64_t option_size, uint64_t count) {
  OptionsReader& reader = *static_cast<OptionsReader*>(sink);
  ReadRecords(options, option_size, count, reader.wrong, [&](const rl_option_info& info) {
    OptionDescription option{
        Printable(info.name, kMaxTextBytes), Printable(info.values, kMaxTextBytes),
        Printable(info.initial, kMaxTextBytes), Printable(info.meaning, kMaxTextBytes)};
    std::string wrong = CheckOption(option, reader.options);
    if (wrong.empty()) reader.options.push_back(std::move(option));
    return wrong;
  });
}

CallWatch WatchCallsOf(const PluginHost& host, std::string_view plugin,
                       std::chrono::milliseconds patience) {
  return CallWatch(
      patience,
      [name = std::string(plugin), patience](const WatchedCall& call) {
        return fmt::format(
            "plugin '{}' has spent {} s in {}{}; its driver may hang, Ctrl-C stops rullama", name,
            std::chrono::duration_cast<std::chrono::duration<double>>(patience).count(),
            call.function, SubjectOf(call));
      },
      [&host](const std::string& text) { host.logger().warn("{}", text); });
}

}  // namespace

Result<std::shared_ptr<Plugin>> Plugin::Load(const std::filesystem::path& path,
                                             const std::shared_ptr<PluginHost>& host) {
  CallWatch watch = WatchCallsOf(*host, path.string(), host->patience());
  const CallWatch::Scope scope(watch, {.function = "loading"});
  RL_ASSIGN_OR_RETURN(const rl_plugin_query_fn query, LoadQueryFunction(path));
  return FromQuery(query, path.string(), host);
}

Result<std::shared_ptr<Plugin>> Plugin::FromQuery(rl_plugin_query_fn query, std::string origin,
                                                  const std::shared_ptr<PluginHost>& host) {
  CallWatch watch = WatchCallsOf(*host, origin, host->patience());
  const CallWatch::Scope scope(watch, {.function = RL_PLUGIN_QUERY_NAME});
  const rl_host_v1* host_table = PluginHost::MakeTable(host, ComponentOf(origin));
  Uses& uses = AllUses();
  const std::lock_guard lock(uses.mutex);
  RL_ASSIGN_OR_RETURN(const rl_plugin_v1 table, Handshake(query, origin, host_table));
  auto plugin = std::shared_ptr<Plugin>(new Plugin());
  plugin->query_ = query;
  ++uses.counts[query];
  plugin->host_ = host;
  plugin->table_ = table;
  plugin->name_ = Printable(table.name, kMaxTextBytes);
  plugin->version_ = Printable(table.version, kMaxTextBytes);
  plugin->vendor_ = Printable(table.vendor, kMaxTextBytes);
  plugin->build_ = Printable(table.build, kMaxTextBytes);
  plugin->origin_ = std::move(origin);
  plugin->abi_ = {table.abi_major, table.abi_minor};
  // Calls are announced by name (call_guard.h), also after the plugin has shut down: ours outlives
  // its.
  plugin->table_.name = {plugin->name_.data(), plugin->name_.size()};
  return plugin;
}

CallWatch Plugin::WatchCalls(std::chrono::milliseconds patience) const {
  return WatchCallsOf(*host_, name_, patience);
}

Result<DeviceDescription> Plugin::Describe(uint32_t index) const {
  const CallSite site{name_, {}, "device_info"};
  rl_device_info info{};
  info.struct_size = sizeof(info);
  rl_error error = EmptyError();
  const int32_t code =
      CallPlugin(name_, site.function, table_.device_info, table_.context, index, &info, &error);
  RL_RETURN_IF_ERROR(CallStatus(site, code, error));
  const auto broken = [&](std::string_view what) {
    return tl::unexpected<Error>(
        ContractError(site, fmt::format("described device {} {}", index, what)));
  };
  if (info.type < RL_DEVICE_CPU || info.type > RL_DEVICE_OTHER) {
    return broken(fmt::format("with type {}, which is not an rl_device_type", info.type));
  }
  if (info.name.data == nullptr || info.name.size == 0) return broken("without a name");
  const bool power_of_two = info.alignment != 0 && (info.alignment & (info.alignment - 1)) == 0;
  if (!power_of_two) {
    return broken(fmt::format("with alignment {}, expected a power of two", info.alignment));
  }
  if (info.max_buffer_bytes == 0) return broken("with max_buffer_bytes 0");
  DeviceDescription description;
  description.type = static_cast<rl_device_type>(info.type);
  description.name = Printable(info.name, kMaxTextBytes);
  description.driver = Printable(info.driver, kMaxTextBytes);
  description.memory_total = info.memory_total;
  description.memory_free = info.memory_free;
  description.max_buffer_bytes = info.max_buffer_bytes;
  description.alignment = info.alignment;
  description.deterministic = info.deterministic != 0;
  return description;
}

Result<Plugin::DeviceList> Plugin::ListDevices() const {
  const CallSite site{name_, {}, "device_count"};
  CallWatch watch = WatchCalls(host_->patience());
  const CallWatch::Scope scope(watch, {.function = site.function});
  rl_str reason{};
  const uint32_t count =
      CallPlugin(name_, site.function, table_.device_count, table_.context, &reason);
  if (count > kMaxDevices) {
    return tl::unexpected<Error>(
        ContractError(site, fmt::format("returned {}, expected at most {}", count, kMaxDevices)));
  }
  DeviceList list;
  for (uint32_t index = 0; index < count; ++index) {
    RL_ASSIGN_OR_RETURN(DeviceDescription description, Describe(index));
    list.devices.push_back(std::move(description));
  }
  if (count == 0) {
    list.reason = Printable(reason, kMaxTextBytes);
    if (list.reason.empty()) list.reason = "the plugin gave no reason";
  }
  return list;
}

Result<std::vector<OptionDescription>> Plugin::ListOptions() const {
  if (table_.options_describe == nullptr) return std::vector<OptionDescription>();
  const CallSite site{name_, {}, "options_describe"};
  CallWatch watch = WatchCalls(host_->patience());
  const CallWatch::Scope scope(watch, {.function = site.function});
  OptionsReader reader;
  rl_error error = EmptyError();
  const int32_t code = CallPlugin(name_, site.function, table_.options_describe, table_.context,
                                  static_cast<void*>(&reader), TakeOptions, &error);
  RL_RETURN_IF_ERROR(CallStatus(site, code, error));
  if (!reader.wrong.empty()) {
    return tl::unexpected<Error>(ContractError(site, "passed a record " + reader.wrong));
  }
  return std::move(reader.options);
}

Result<std::unique_ptr<Device>> Plugin::Open(
    uint32_t index, std::span<const std::pair<std::string, std::string>> options) const {
  RL_ASSIGN_OR_RETURN(DeviceDescription description, Describe(index));
  const CallSite site{name_, description.name, "device_open"};
  CallWatch watch = WatchCalls(host_->patience());
  const CallWatch::Scope scope(watch, {.function = site.function});
  std::vector<rl_option> pairs;
  pairs.reserve(options.size());
  for (const auto& [key, value] : options) {
    pairs.push_back({{key.data(), key.size()}, {value.data(), value.size()}});
  }
  rl_device* handle = nullptr;
  rl_error error = EmptyError();
  const int32_t code =
      CallPlugin(name_, site.function, table_.device_open, table_.context, index, pairs.data(),
                 static_cast<uint32_t>(pairs.size()), &handle, &error);
  if (Status status = CallStatus(site, code, error); !status) {
    // The arguments are ours except for the options, which are the user's.
    if (code == RL_INVALID_ARGUMENT) {
      status.error().kind = ErrorKind::kUsage;
      status.error().id = "device.option";
    }
    return tl::unexpected<Error>(std::move(status).error());
  }
  if (handle == nullptr) {
    return tl::unexpected<Error>(ContractError(site, "returned RL_OK without a device"));
  }
  return std::unique_ptr<Device>(new Device(shared_from_this(), handle, std::move(description)));
}

void Plugin::Shutdown() {
  if (query_ == nullptr) return;
  Uses& uses = AllUses();
  const std::lock_guard lock(uses.mutex);
  const auto use = uses.counts.find(std::exchange(query_, nullptr));
  if (--use->second > 0) return;
  uses.counts.erase(use);
  CallWatch watch = WatchCalls(host_->patience());
  const CallWatch::Scope scope(watch, {.function = "shutdown"});
  CallPlugin(name_, "shutdown", table_.shutdown, table_.context);
}

Plugin::~Plugin() { Shutdown(); }

}  // namespace rullama
