// A plugin and its devices as the core sees them: RAII over the C tables of rullama_abi.h. Every
// answer of a plugin is checked here (null handles, wrong counts, unknown codes, missing text), so
// that the rest of the core can rely on it.
//
// Ownership: Plugin owns the loaded library (which is never unloaded) and outlives its Devices; a
// Device outlives its DeviceBuffer, DeviceWeight and DevicePlan objects, which free themselves.
// Thread safety: Plugin is immutable after loading. A Device and its objects are used by one thread
// at a time; the caller serialises. Errors: kind kBackend (kOutOfMemory for RL_OUT_OF_MEMORY,
// kUsage for a bad option, kRuntime with id "run.cancelled" for a cancelled call); ids plugin.* and
// device.* as in call_status.h; the message names plugin, device and op.
#pragma once

#include <rullama/abi/rullama_abi.h>
#include <rullama/sdk/answers.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/ir/graph.h"
#include "core/plugin/call_guard.h"
#include "core/plugin/call_status.h"
#include "core/plugin/call_watch.h"
#include "core/plugin/host_table.h"

namespace rullama {

struct DeviceDescription {
  rl_device_type type = RL_DEVICE_OTHER;
  std::string name;
  std::string driver;
  uint64_t memory_total = 0;
  uint64_t memory_free = 0;
  uint64_t max_buffer_bytes = 0;
  uint32_t alignment = 1;
  bool deterministic = false;
};

using sdk::OpSupport;
using sdk::WeightLayout;

// A constant on its way to a device. `data` is not looked at by LayoutWeight(), and stays valid
// until the DeviceWeight is gone if that is to read it in place.
struct WeightDesc {
  std::string name;
  TensorType type;  // all dims constant
  std::span<const std::byte> data;
  uint32_t uses = 0;  // rl_weight_uses
};

class Device;

// The members of rl_plugin_v1 that free objects, as messages name them.
constexpr std::string_view NameOfFree(const rl_buffer*) { return "buffer_free"; }
constexpr std::string_view NameOfFree(const rl_weight*) { return "weight_free"; }
constexpr std::string_view NameOfFree(const rl_plan*) { return "plan_free"; }

// Owning handle of an object of a device; moves, never copies. `Free` is the table's function.
// It points into its Plugin, which outlives it.
template <typename Handle, void (*rl_plugin_v1::*Free)(rl_device*, Handle*)>
class DeviceObject {
 public:
  DeviceObject() = default;
  DeviceObject(const rl_plugin_v1* table, rl_device* device, Handle* handle)
      : table_(table), device_(device), handle_(handle) {}
  DeviceObject(DeviceObject&& other) noexcept { *this = std::move(other); }
  DeviceObject& operator=(DeviceObject&& other) noexcept {
    if (this == &other) return *this;
    Reset();
    table_ = other.table_;
    device_ = other.device_;
    handle_ = std::exchange(other.handle_, nullptr);
    return *this;
  }
  DeviceObject(const DeviceObject&) = delete;
  DeviceObject& operator=(const DeviceObject&) = delete;
  ~DeviceObject() { Reset(); }

  [[nodiscard]] Handle* get() const { return handle_; }
  explicit operator bool() const { return handle_ != nullptr; }
  void Reset() {
    Handle* handle = std::exchange(handle_, nullptr);
    if (handle == nullptr) return;
    const std::string_view plugin(table_->name.data, static_cast<size_t>(table_->name.size));
    CallPlugin(plugin, NameOfFree(handle), table_->*Free, device_, handle);
  }

 private:
  const rl_plugin_v1* table_ = nullptr;
  rl_device* device_ = nullptr;
  Handle* handle_ = nullptr;
};

using DeviceBuffer = DeviceObject<rl_buffer, &rl_plugin_v1::buffer_free>;
using DeviceWeight = DeviceObject<rl_weight, &rl_plugin_v1::weight_free>;
using DevicePlan = DeviceObject<rl_plan, &rl_plugin_v1::plan_free>;

// The storage of a graph's value on the device; parallel to Graph::values when a plan is compiled.
struct Storage {
  rl_lifetime lifetime = RL_LIFETIME_TRANSIENT;  // kOutput marks transients the host reads
  bool observed = false;
  rl_weight* weight = nullptr;  // constants
  rl_buffer* buffer = nullptr;  // everything else
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

// An option that a plugin's devices take, in words for people (rl_option_info).
struct OptionDescription {
  std::string name;
  std::string values;   // what it takes: "on, off"
  std::string initial;  // what holds unless it is given
  std::string meaning;
};

// Whether a plan records when its ops run. Without it, executions read no clock.
enum class RecordTimes : uint8_t { kNo, kYes };

// An interval in which one worker of a device ran ops of a plan (rl_op_time).
struct OpTime {
  using Clock = std::chrono::steady_clock;

  std::span<const uint32_t> ops;  // indices into the graph, ascending; valid during the call
  uint32_t worker = 0;
  Clock::time_point begin = {};
  Clock::time_point end = {};
};

class Plugin;

class Device {
 public:
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  [[nodiscard]] const Plugin& plugin() const { return *plugin_; }
  [[nodiscard]] const DeviceDescription& description() const { return description_; }

  // Returns one answer for each op of the graph.
  Result<std::vector<OpSupport>> QueryOps(const Graph& graph);
  // Returns a text for people about how the backend would run the graph; empty if it runs op by op
  // or does not say.
  Result<std::string> DescribeGraph(const Graph& graph);
  // `desc.data` is not read. Error: plugin.contract for an answer that cannot be.
  Result<WeightLayout> LayoutWeight(const WeightDesc& desc);
  Result<DeviceWeight> CreateWeight(const WeightDesc& desc);
  Result<DeviceBuffer> CreateBuffer(uint64_t bytes, rl_buffer_usage usage);
  Status Write(const DeviceBuffer& buffer, uint64_t offset, std::span<const std::byte> data);
  Status Read(const DeviceBuffer& buffer, uint64_t offset, std::span<std::byte> data);
  // `storage` is parallel to graph.values.
  Result<DevicePlan> Compile(const Graph& graph, std::span<const Storage> storage,
                             RecordTimes record_times = RecordTimes::kNo);
  // `graph` is the one the plan was compiled from, or null: errors then number their op.
  Status Execute(const DevicePlan& plan, const Extents& extents, const Graph* graph = nullptr);
  Result<rl_plan_stats> Stats(const DevicePlan& plan);
  // Whether the plugin has a function for ReadTimes().
  [[nodiscard]] bool RecordsTimes() const;
  // Passes on when the ops of the last execution of a plan with RecordTimes::kYes ran; call it
  // after Wait(). Passes nothing for other plans and for plugins that do not record. `graph`: of
  // the plan. Error: plugin.contract for records that cannot be, after those before them.
  Status ReadTimes(const DevicePlan& plan, const Graph& graph,
                   const std::function<void(const OpTime&)>& sink);
  Status Wait();

 private:
  friend class Plugin;
  Device(std::shared_ptr<const Plugin> plugin, rl_device* handle, DeviceDescription description);
  // Calls a function of the table that reports errors; the error record is its last parameter.
  template <typename Function, typename... Args>
  Status Call(const CallSite& site, std::string_view object, Function function, Args... args);

  std::shared_ptr<const Plugin> plugin_;
  rl_device* handle_;
  DeviceDescription description_;
  CallWatch watch_;
};

class Plugin : public std::enable_shared_from_this<Plugin> {
 public:
  // Opens the file and does the handshake. Errors: plugin.load (with the loader's own text),
  // plugin.entry (no entry point), plugin.refused (the plugin's own words), plugin.abi (both
  // versions named), plugin.contract (the member named).
  static Result<std::shared_ptr<Plugin>> Load(const std::filesystem::path& path,
                                              const std::shared_ptr<PluginHost>& host);
  // A plugin that is part of this program (the reference backend), through the same handshake.
  static Result<std::shared_ptr<Plugin>> FromQuery(rl_plugin_query_fn query, std::string origin,
                                                   const std::shared_ptr<PluginHost>& host);

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const std::string& version() const { return version_; }
  [[nodiscard]] const std::string& vendor() const { return vendor_; }
  [[nodiscard]] const std::string& build() const { return build_; }
  [[nodiscard]] const std::string& origin() const { return origin_; }  // path, or "built in"
  [[nodiscard]] std::pair<int, int> abi_version() const { return abi_; }
  [[nodiscard]] const rl_plugin_v1& table() const { return table_; }

  // The devices, or none with a reason.
  struct DeviceList {
    std::vector<DeviceDescription> devices;
    std::string reason;
  };
  Result<DeviceList> ListDevices() const;
  // The options that Open takes, in the plugin's order; none if the plugin is older than ABI 1.7.
  // Error: plugin.contract for a record that cannot be.
  Result<std::vector<OptionDescription>> ListOptions() const;
  Result<std::unique_ptr<Device>> Open(
      uint32_t index, std::span<const std::pair<std::string, std::string>> options) const;

  // Gives the plugin up after all devices of this object are closed; the object is not to be used
  // afterwards. The last object of the process that uses the plugin tells it to shut down. The
  // destructor does the same.
  void Shutdown();
  ~Plugin();

 private:
  friend class Device;
  Plugin() = default;
  Result<DeviceDescription> Describe(uint32_t index) const;
  // Watches calls of the plugin for as long as the object exists, which this one outlives.
  [[nodiscard]] CallWatch WatchCalls(std::chrono::milliseconds patience) const;

  std::shared_ptr<PluginHost> host_;
  rl_plugin_query_fn query_ = nullptr;  // null once given up
  rl_plugin_v1 table_{};                // our copy: min(struct_size) bytes of the plugin's
  std::string name_, version_, vendor_, build_, origin_;
  std::pair<int, int> abi_{0, 0};
};

}  // namespace rullama
