// RULLAMA_EXPORT_BACKEND(MyBackend), once in one source file of a plugin, defines the plugin's only
// exported symbol. MyBackend derives sdk::Backend and has a constructor from sdk::Host.
//
// The thunks below are noexcept: sdk::Error keeps its code, std::bad_alloc becomes
// RL_OUT_OF_MEMORY, anything else RL_INTERNAL; the text names the function, the op index comes from
// the error or from an OpScope. Opaque handles are pointers to the SDK's base classes (rl_device*
// is sdk::Device*). Ownership: the backend object is created by the first query and destroyed by
// shutdown, never by a static destructor: drivers may be gone by then.
#pragma once

#include <rullama/abi/rullama_abi.h>
#include <rullama/sdk/backend.h>
#include <rullama/sdk/op_scope.h>
#include <rullama/sdk/thunk.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#define RL_SDK_TEXT_INNER(x) #x
#define RL_SDK_TEXT(x) RL_SDK_TEXT_INNER(x)
#if defined(__clang__)
#define RL_SDK_COMPILER __VERSION__
#else
#define RL_SDK_COMPILER "gcc " __VERSION__
#endif
#if defined(_LIBCPP_VERSION)
#define RL_SDK_LIBRARY "libc++ " RL_SDK_TEXT(_LIBCPP_VERSION)
#else
#define RL_SDK_LIBRARY "libstdc++ " RL_SDK_TEXT(__GLIBCXX__)
#endif
#if defined(NDEBUG)
#define RL_SDK_ASSERTS "no assertions"
#else
#define RL_SDK_ASSERTS "assertions"
#endif

namespace rullama::sdk::internal {

inline constexpr std::string_view kBuild = RL_SDK_COMPILER ", " RL_SDK_LIBRARY ", " RL_SDK_ASSERTS;

// The object that rl_plugin_v1::context points to.
class Exported {
 public:
  explicit Exported(std::unique_ptr<Backend> backend) : backend_(std::move(backend)) {}

  [[nodiscard]] Backend& backend() { return *backend_; }
  // Asks the backend, which may search for devices the first time, by one thread at a time.
  [[nodiscard]] const std::vector<DeviceInfo>& Devices() {
    const std::lock_guard lock(devices_mutex_);
    return backend_->Devices();
  }
  // Keeps the text of a failed enumeration. Strings have to live until shutdown, so only the first
  // text is kept.
  std::string_view KeepFailure(const rl_error& error) {
    const std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = error.message;
    return failure_;
  }

 private:
  std::unique_ptr<Backend> backend_;
  std::mutex devices_mutex_;
  std::mutex mutex_;  // of failure_
  std::string failure_;
};

inline Exported& ExportedOf(void* context) { return *static_cast<Exported*>(context); }
inline Backend& BackendOf(void* context) { return ExportedOf(context).backend(); }
inline Device& DeviceOf(rl_device* device) { return *reinterpret_cast<Device*>(device); }
inline Buffer& Deref(rl_buffer* buffer) { return *reinterpret_cast<Buffer*>(buffer); }
inline Plan& Deref(rl_plan* plan) { return *reinterpret_cast<Plan*>(plan); }

// ---- plugin

inline uint32_t DeviceCount(void* context, rl_str* reason) noexcept {
  size_t count = 0;
  std::string_view why;
  rl_error error{};
  error.struct_size = sizeof(error);
  const int32_t code = Guard(&error, "Devices", [&] {
    count = ExportedOf(context).Devices().size();
    if (count == 0) why = BackendOf(context).NoDeviceReason();
  });
  if (code != RL_OK) {
    count = 0;
    // Keeping the text may itself run out of memory; then there is no reason to give.
    (void)Guard(nullptr, "Devices", [&] { why = ExportedOf(context).KeepFailure(error); });
  }
  if (reason != nullptr) *reason = Str(why);
  return static_cast<uint32_t>(count);
}

inline int32_t GetDeviceInfo(void* context, uint32_t index, rl_device_info* info,
                             rl_error* error) noexcept {
  return Guard(error, "Devices", [&] {
    const std::vector<DeviceInfo>& devices = ExportedOf(context).Devices();
    Require(index < devices.size(), "there is no device of this index");
    const DeviceInfo& device = devices[index];
    rl_device_info out{};
    out.type = device.type;
    out.name = Str(device.name);
    out.driver = Str(device.driver);
    out.memory_total = device.memory_total;
    out.memory_free = device.memory_free;
    out.max_buffer_bytes = device.max_buffer_bytes;
    out.alignment = device.alignment;
    out.deterministic = device.deterministic ? 1 : 0;
    StoreSized(info, out, RL_SIZE_UP_TO(rl_device_info, deterministic));
  });
}

inline int32_t DescribeOptions(void* context, void* sink, rl_option_sink write,
                               rl_error* error) noexcept {
  return Guard(error, "Options", [&] {
    Require(write != nullptr, "the sink is missing");
    for (const OptionInfo& option : BackendOf(context).Options()) {
      const rl_option_info info{Str(option.name), Str(option.values), Str(option.initial),
                                Str(option.meaning)};
      write(sink, &info, sizeof(info), 1);
    }
  });
}

inline int32_t OpenDevice(void* context, uint32_t index, const rl_option* options,
                          uint32_t option_count, rl_device** device, rl_error* error) noexcept {
  return Guard(error, "Open", [&] {
    Require(index < ExportedOf(context).Devices().size(), "there is no device of this index");
    std::vector<Option> copies;
    copies.reserve(option_count);
    for (uint32_t i = 0; i < option_count; ++i) {
      copies.push_back({std::string(View(options[i].key)), std::string(View(options[i].value))});
    }
    HandOut<rl_device, Device>(device, BackendOf(context).Open(index, copies), "Open");
  });
}

inline void CloseDevice(rl_device* device) noexcept {
  delete &DeviceOf(device);  // destructors do not throw; the base classes see to that
}

// ---- capability, weights, memory

inline int32_t QueryOps(rl_device* device, const rl_graph* graph, rl_op_support* support,
                        rl_error* error) noexcept {
  return Guard(error, "QueryOps", [&] {
    RequireGraph(graph);
    Require(support != nullptr || graph->op_count == 0, "the answer array is missing");
    const std::vector<OpSupport> answers = DeviceOf(device).QueryOps(GraphView(*graph));
    if (answers.size() != graph->op_count) {
      throw Error(RL_INTERNAL, "answered " + std::to_string(answers.size()) + " of " +
                                   std::to_string(graph->op_count) + " ops");
    }
    for (size_t i = 0; i < answers.size(); ++i) {
      support[i].supported = answers[i].supported ? 1 : 0;
      CopyText(support[i].reason, sizeof(support[i].reason), answers[i].reason);
    }
  });
}

inline int32_t DescribeGraph(rl_device* device, const rl_graph* graph, void* sink,
                             rl_text_sink write, rl_error* error) noexcept {
  return Guard(error, "DescribeGraph", [&] {
    RequireGraph(graph);
    Require(write != nullptr, "the sink is missing");
    const std::string text = DeviceOf(device).DescribeGraph(GraphView(*graph));
    if (!text.empty()) write(sink, Str(text));
  });
}

// The host's description in the current size; members that an older host lacks are zero.
inline rl_weight_desc WholeWeight(const rl_weight_desc* desc) {
  RequireWeight(desc);
  rl_weight_desc whole{};
  std::memcpy(&whole, desc, std::min<size_t>(desc->struct_size, sizeof(whole)));
  return whole;
}

inline int32_t LayoutWeight(rl_device* device, const rl_weight_desc* desc, rl_weight_layout* layout,
                            rl_error* error) noexcept {
  return Guard(error, "LayoutWeight", [&] {
    const WeightLayout answer = DeviceOf(device).LayoutWeight(WholeWeight(desc));
    rl_weight_layout out{};
    out.in_place = answer.in_place ? 1 : 0;
    out.bytes = answer.bytes;
    StoreSized(layout, out, RL_SIZE_UP_TO(rl_weight_layout, bytes));
  });
}

inline int32_t CreateWeight(rl_device* device, const rl_weight_desc* desc, rl_weight** weight,
                            rl_error* error) noexcept {
  return Guard(error, "CreateWeight", [&] {
    const rl_weight_desc whole = WholeWeight(desc);
    Require(whole.data != nullptr || whole.bytes == 0, "the weight has no data");
    HandOut<rl_weight, Weight>(weight, DeviceOf(device).CreateWeight(whole), "CreateWeight");
  });
}

inline void FreeWeight(rl_device*, rl_weight* weight) noexcept {
  delete reinterpret_cast<Weight*>(weight);
}

inline int32_t CreateBuffer(rl_device* device, uint64_t bytes, int32_t usage, rl_buffer** buffer,
                            rl_error* error) noexcept {
  return Guard(error, "CreateBuffer", [&] {
    Require(bytes > 0, "a buffer of 0 bytes");
    Require(usage >= RL_BUFFER_IO && usage <= RL_BUFFER_ARENA, "an unknown buffer usage");
    HandOut<rl_buffer, Buffer>(
        buffer, DeviceOf(device).CreateBuffer(bytes, static_cast<rl_buffer_usage>(usage)),
        "CreateBuffer");
  });
}

inline void FreeBuffer(rl_device*, rl_buffer* buffer) noexcept { delete &Deref(buffer); }

inline int32_t WriteBuffer(rl_device* device, rl_buffer* buffer, uint64_t offset, const void* data,
                           uint64_t size, rl_error* error) noexcept {
  return Guard(error, "Write", [&] {
    Require(buffer != nullptr && (data != nullptr || size == 0), "no buffer or no data");
    DeviceOf(device).Write(Deref(buffer), offset,
                           {static_cast<const std::byte*>(data), static_cast<std::size_t>(size)});
  });
}

inline int32_t ReadBuffer(rl_device* device, rl_buffer* buffer, uint64_t offset, void* data,
                          uint64_t size, rl_error* error) noexcept {
  return Guard(error, "Read", [&] {
    Require(buffer != nullptr && (data != nullptr || size == 0), "no buffer or no data");
    DeviceOf(device).Read(Deref(buffer), offset,
                          {static_cast<std::byte*>(data), static_cast<std::size_t>(size)});
  });
}

// ---- plans

inline int32_t CompilePlan(rl_device* device, const rl_graph* graph, rl_plan** plan,
                           rl_error* error) noexcept {
  return Guard(error, "Compile", [&] {
    RequireGraph(graph);
    HandOut<rl_plan, Plan>(plan, DeviceOf(device).Compile(GraphView(*graph)), "Compile");
  });
}

inline int32_t ExecutePlan(rl_plan* plan, const rl_step* step, rl_error* error) noexcept {
  return Guard(error, "Execute", [&] {
    Require(step != nullptr && step->struct_size >= RL_SIZE_UP_TO(rl_step, r),
            "the step is missing or smaller than that of version 1.0");
    Deref(plan).Execute(step->t, step->r);
  });
}

inline int32_t GetPlanStats(rl_plan* plan, rl_plan_stats* stats, rl_error* error) noexcept {
  return Guard(error, "Stats", [&] {
    StoreSized(stats, Deref(plan).Stats(), RL_SIZE_UP_TO(rl_plan_stats, workspace_bytes));
  });
}

inline int32_t GetPlanTimes(rl_plan* plan, void* sink, rl_time_sink write,
                            rl_error* error) noexcept {
  return Guard(error, "Times", [&] {
    Require(write != nullptr, "the sink is missing");
    const std::span<const rl_op_time> times = Deref(plan).Times();
    if (!times.empty()) write(sink, times.data(), sizeof(rl_op_time), times.size());
  });
}

inline void FreePlan(rl_device*, rl_plan* plan) noexcept { delete &Deref(plan); }

inline int32_t WaitDevice(rl_device* device, rl_error* error) noexcept {
  return Guard(error, "Wait", [&] { DeviceOf(device).Wait(); });
}

// ---- the query function

// Refuses a host this plugin cannot work with.
inline void CheckHost(const rl_host_v1* host) {
  Require(host != nullptr, "the host table is missing");
  if (host->abi_major != RL_ABI_MAJOR) {
    throw Error(RL_UNSUPPORTED, "this plugin speaks version " RL_SDK_TEXT(
                                    RL_ABI_MAJOR) "." RL_SDK_TEXT(RL_ABI_MINOR) ", the host " +
                                    std::to_string(host->abi_major) + "." +
                                    std::to_string(host->abi_minor));
  }
  if (host->struct_size < RL_SIZE_UP_TO(rl_host_v1, blob_put)) {
    throw Error(RL_UNSUPPORTED, "the host table has " + std::to_string(host->struct_size) +
                                    " bytes, fewer than that of version 1.0");
  }
  Require(host->log != nullptr && host->cancelled != nullptr && host->blob_get != nullptr &&
              host->blob_put != nullptr,
          "a function of the host table is null");
}

// The one backend of this plugin and its table. The members are set by the first query and cleared
// by shutdown; the mutex guards against queries from two threads.
struct PluginInstance {
  std::mutex mutex;
  Exported* exported = nullptr;  // owned; freed by shutdown and by nothing else (see above)
  rl_plugin_v1 table{};
};

inline rl_plugin_v1 MakeTable(Exported* exported, void (*shutdown)(void*)) {
  const Backend& backend = exported->backend();
  rl_plugin_v1 table{};
  table.struct_size = sizeof(table);
  table.abi_major = RL_ABI_MAJOR;
  table.abi_minor = RL_ABI_MINOR;
  table.name = Str(backend.name());
  table.version = Str(backend.version());
  table.vendor = Str(backend.vendor());
  table.build = Str(kBuild);
  table.context = exported;
  table.device_count = DeviceCount;
  table.device_info = GetDeviceInfo;
  table.device_open = OpenDevice;
  table.device_close = CloseDevice;
  table.query_ops = QueryOps;
  table.weight_layout = LayoutWeight;
  table.weight_create = CreateWeight;
  table.weight_free = FreeWeight;
  table.buffer_create = CreateBuffer;
  table.buffer_free = FreeBuffer;
  table.buffer_write = WriteBuffer;
  table.buffer_read = ReadBuffer;
  table.plan_compile = CompilePlan;
  table.plan_execute = ExecutePlan;
  table.plan_stats = GetPlanStats;
  table.plan_free = FreePlan;
  table.device_wait = WaitDevice;
  table.shutdown = shutdown;
  table.graph_describe = DescribeGraph;
  table.plan_times = GetPlanTimes;
  table.options_describe = DescribeOptions;
  return table;
}

// One instance for each backend type, so that a program may hold several backends built in.
template <typename B>
struct Entry {
  // Allocated once and never freed: no destructor of ours runs after main.
  static PluginInstance& Instance() {
    static PluginInstance* const kInstance = new PluginInstance;
    return *kInstance;
  }

  static int32_t Query(const rl_host_v1* host, const rl_plugin_v1** plugin,
                       rl_error* error) noexcept {
    return Guard(error, RL_PLUGIN_QUERY_NAME, [&] {
      CheckHost(host);
      Require(plugin != nullptr, "the result pointer is missing");
      PluginInstance& instance = Instance();
      const std::lock_guard lock(instance.mutex);
      if (instance.exported == nullptr) {
        auto exported = std::make_unique<Exported>(std::make_unique<B>(Host(*host)));
        instance.table = MakeTable(exported.get(), Shutdown);
        instance.exported = exported.release();
      }
      *plugin = &instance.table;
    });
  }

  static void Shutdown(void*) noexcept {
    (void)Guard(nullptr, "shutdown", [] {
      PluginInstance& instance = Instance();
      const std::lock_guard lock(instance.mutex);
      delete std::exchange(instance.exported, nullptr);
    });
  }
};

}  // namespace rullama::sdk::internal

// The query function of a backend that is linked into the program instead of loaded: hand it to
// Registry::RegisterBuiltIn.
#define RULLAMA_BACKEND_QUERY(BackendType) (&::rullama::sdk::internal::Entry<BackendType>::Query)

// A build that links several backends into one program names the query function of each.
#if !defined(RULLAMA_QUERY_NAME)
#define RULLAMA_QUERY_NAME rullama_plugin_query_v1
#endif
#define RULLAMA_EXPORT_BACKEND(BackendType)                                          \
  extern "C" __attribute__((visibility("default"))) int32_t RULLAMA_QUERY_NAME(      \
      const rl_host_v1* host, const rl_plugin_v1** plugin, rl_error* error) {        \
    return ::rullama::sdk::internal::Entry<BackendType>::Query(host, plugin, error); \
  }
