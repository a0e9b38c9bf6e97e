// Write a backend: derive Backend, Device and Plan, then put RULLAMA_EXPORT_BACKEND(YourBackend)
// into one source file. This header is compiled inside the plugin; nothing C++ crosses the
// boundary.
//
// Errors: throw sdk::Error (or any std::exception; std::bad_alloc becomes RL_OUT_OF_MEMORY). The
// thunks in export.h are noexcept and turn whatever is thrown into the caller's error record.
// Threads: the host serialises all calls on one device and its objects ([device] in rullama_abi.h);
// Backend methods may be called from any thread.
// Ownership: the host owns what Device creates and destroys it before the Device.
#pragma once

#include <rullama/abi/rullama_abi.h>
#include <rullama/sdk/answers.h>
#include <rullama/sdk/attributes.h>
#include <rullama/sdk/dtype.h>
#include <rullama/sdk/half.h>
#include <rullama/sdk/op_scope.h>
#include <rullama/sdk/philox.h>
#include <rullama/sdk/shape.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rullama::sdk {

// Names that the smaller headers declare outside of this namespace; plugins need this namespace
// only.
using rullama::BFloat16ToFloat;
using rullama::DType;
using rullama::DTypeInfo;
using rullama::FindDType;
using rullama::FloatToBFloat16;
using rullama::FloatToHalf;
using rullama::HalfToFloat;
using rullama::InfoOf;
using rullama::NameOf;
using rullama::PhiloxUniform;
using rullama::RowBytes;

class Error : public std::runtime_error {
 public:
  explicit Error(rl_code code, const std::string& message, uint32_t op_index = RL_NO_OP,
                 int32_t device_code = 0)
      : std::runtime_error(message), code_(code), op_index_(op_index), device_code_(device_code) {}

  [[nodiscard]] rl_code code() const { return code_; }
  [[nodiscard]] uint32_t op_index() const { return op_index_; }
  [[nodiscard]] int32_t device_code() const { return device_code_; }

 private:
  rl_code code_;
  uint32_t op_index_;
  int32_t device_code_;
};

inline std::string_view View(rl_str text) {
  return std::string_view(text.data, static_cast<std::size_t>(text.size));
}
inline rl_str Str(std::string_view text) { return {text.data(), text.size()}; }

// The elements of an array of the host, whose structs may be larger than this plugin knows. For
// range-for.
template <typename T>
class HostArray {
 public:
  class Iterator {
   public:
    Iterator(const std::byte* at, size_t stride) : at_(at), stride_(stride) {}
    const T& operator*() const { return *reinterpret_cast<const T*>(at_); }
    Iterator& operator++() {
      at_ += stride_;
      return *this;
    }
    bool operator==(const Iterator& other) const { return at_ == other.at_; }

   private:
    const std::byte* at_;
    size_t stride_;
  };

  HostArray(const T* first, size_t stride, size_t count)
      : first_(reinterpret_cast<const std::byte*>(first)), stride_(stride), count_(count) {}
  [[nodiscard]] Iterator begin() const { return {first_, stride_}; }
  [[nodiscard]] Iterator end() const { return {first_ + stride_ * count_, stride_}; }
  [[nodiscard]] size_t size() const { return count_; }
  [[nodiscard]] const T& operator[](size_t i) const {
    return *reinterpret_cast<const T*>(first_ + stride_ * i);
  }

 private:
  const std::byte* first_;
  size_t stride_, count_;
};

// A graph as the plugin sees it. Honours the element strides of the host; valid during the call:
// what a kernel needs of it is copied in Compile.
class GraphView {
 public:
  explicit GraphView(const rl_graph& graph) : graph_(graph) {}

  [[nodiscard]] std::string_view name() const { return View(graph_.name); }
  [[nodiscard]] int64_t max_t() const { return graph_.max_t; }
  [[nodiscard]] int64_t max_r() const { return graph_.max_r; }
  // Whether the plan is to record when its ops run (Plan::Times).
  [[nodiscard]] bool record_times() const {
    constexpr size_t kEnd = offsetof(rl_graph, record_times) + sizeof(graph_.record_times);
    return graph_.struct_size >= kEnd && graph_.record_times != 0;
  }
  [[nodiscard]] uint32_t value_count() const { return graph_.value_count; }
  [[nodiscard]] uint32_t op_count() const { return graph_.op_count; }
  [[nodiscard]] HostArray<rl_value> values() const {
    return {graph_.values, graph_.value_size, graph_.value_count};
  }
  [[nodiscard]] HostArray<rl_op> ops() const {
    return {graph_.ops, graph_.op_size, graph_.op_count};
  }
  [[nodiscard]] const rl_value& value(uint32_t index) const { return values()[index]; }
  [[nodiscard]] const rl_op& op(uint32_t index) const { return ops()[index]; }
  // Operand `i` of an op, or null if it is absent: optional ones are (ops.md). Results never are.
  [[nodiscard]] const rl_value* input(const rl_op& op, uint32_t i) const {
    if (i >= op.input_count || op.inputs[i] == RL_NO_VALUE) return nullptr;
    return &value(op.inputs[i]);
  }
  [[nodiscard]] const rl_value& result(const rl_op& op, uint32_t i = 0) const {
    return value(op.results[i]);
  }
  // The attributes as their ABI struct, e.g. attrs<rl_rms_norm_attrs>(op). What an older host does
  // not know is zero.
  template <typename Attrs>
  [[nodiscard]] static Attrs attrs(const rl_op& op) {
    if (op.attrs_size < kMinAttributeBytes<Attrs>) {
      throw Error(RL_INVALID_ARGUMENT, "attributes are smaller than this plugin expects");
    }
    return ReadAttributes<Attrs>(op.attrs, op.attrs_size);
  }

 private:
  const rl_graph& graph_;
};

// The host's functions; a C++ view of a copy of its table. It outlives every plugin object.
class Host {
 public:
  explicit Host(const rl_host_v1& table) : table_(&table) {}
  void Log(rl_log_level level, std::string_view message) const {
    table_->log(table_->context, level, Str(message));
  }
  [[nodiscard]] bool Cancelled() const { return table_->cancelled(table_->context) != 0; }
  [[nodiscard]] std::vector<std::byte> BlobGet(std::string_view key) const {
    const uint64_t size = table_->blob_get(table_->context, Str(key), nullptr, 0);
    std::vector<std::byte> data(static_cast<std::size_t>(size));
    const uint64_t now = table_->blob_get(table_->context, Str(key), data.data(), data.size());
    if (now != size) data.clear();  // another process replaced it in between
    return data;
  }
  bool BlobPut(std::string_view key, std::span<const std::byte> data) const {
    return table_->blob_put(table_->context, Str(key), data.data(), data.size()) == RL_OK;
  }

 private:
  const rl_host_v1* table_;
};

// Base classes of the plugin's own objects; the host holds them as opaque handles.
class Buffer {
 public:
  virtual ~Buffer() = default;
};

class Weight {
 public:
  virtual ~Weight() = default;
};

// Now, on the clock of rl_op_time.
inline uint64_t NowNanoseconds() {
  // CLOCK_MONOTONIC in libstdc++ and libc++ on Linux.
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::nanoseconds(now).count());
}

class Plan {
 public:
  virtual ~Plan() = default;
  virtual void Execute(int64_t t, int64_t r) = 0;
  [[nodiscard]] virtual rl_plan_stats Stats() const = 0;  // struct_size is filled by the thunk
  // When the ops of the last execution ran (rl_plugin_v1::plan_times), if the graph of this plan
  // had record_times(). Called after Device::Wait(). The records are valid until the next call on
  // the plan, and their memory was obtained in Compile.
  [[nodiscard]] virtual std::span<const rl_op_time> Times() { return {}; }
};

class Device {
 public:
  virtual ~Device() = default;
  virtual std::vector<OpSupport> QueryOps(const GraphView& graph) = 0;
  // desc.data is null here. desc.uses == 0 says that nothing is known, as from a host of
  // version 1.0: the weight may be used in any way.
  virtual WeightLayout LayoutWeight(const rl_weight_desc& desc) = 0;
  virtual std::unique_ptr<Weight> CreateWeight(const rl_weight_desc& desc) = 0;
  virtual std::unique_ptr<Buffer> CreateBuffer(uint64_t bytes, rl_buffer_usage usage) = 0;
  virtual void Write(Buffer& buffer, uint64_t offset, std::span<const std::byte> data) = 0;
  virtual void Read(Buffer& buffer, uint64_t offset, std::span<std::byte> data) = 0;
  virtual std::unique_ptr<Plan> Compile(const GraphView& graph) = 0;
  // Returns a text for people about how a graph without storage would run (`rullama graph
  // --fused`); empty if every op runs by itself.
  virtual std::string DescribeGraph(const GraphView& /*graph*/) { return {}; }
  virtual void Wait() {}
};

// The object that an opaque handle of a value stands for. Null only where the host has not set it
// yet.
template <typename T>
T* BufferOf(const rl_value& value) {
  return static_cast<T*>(reinterpret_cast<Buffer*>(value.buffer));
}
template <typename T>
T* WeightOf(const rl_value& value) {
  return static_cast<T*>(reinterpret_cast<Weight*>(value.weight));
}

struct DeviceInfo {
  rl_device_type type = RL_DEVICE_OTHER;
  std::string name;
  std::string driver;
  uint64_t memory_total = 0;
  uint64_t memory_free = 0;
  uint64_t max_buffer_bytes = UINT64_MAX;
  uint32_t alignment = 64;
  bool deterministic = true;
};

struct Option {
  std::string key;
  std::string value;
};

// An option in words for people: a row of what `rullama backends -v` prints. Literals.
struct OptionInfo {
  std::string_view name;
  std::string_view values;   // what it takes: "on, off"
  std::string_view initial;  // what holds unless it is given
  std::string_view meaning;
};

// Constructed once, in the query; must not throw for want of a driver: then Devices() is empty and
// NoDeviceReason() says why.
class Backend {
 public:
  explicit Backend(Host host) : host_(host) {}
  virtual ~Backend() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;  // a literal
  [[nodiscard]] virtual std::string_view version() const = 0;
  [[nodiscard]] virtual std::string_view vendor() const = 0;
  // Stable once returned. One thread at a time calls it.
  [[nodiscard]] virtual const std::vector<DeviceInfo>& Devices() = 0;
  [[nodiscard]] virtual std::string_view NoDeviceReason() { return {}; }
  // Every option that Open takes on some device (options.h has tables that Open can read, too).
  [[nodiscard]] virtual std::vector<OptionInfo> Options() const { return {}; }
  virtual std::unique_ptr<Device> Open(uint32_t index, std::span<const Option> options) = 0;

 protected:
  [[nodiscard]] const Host& host() const { return host_; }

 private:
  Host host_;
};

}  // namespace rullama::sdk
