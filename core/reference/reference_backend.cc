#include "core/reference/reference_backend.h"

#include <rullama/sdk/backend.h>
#include <rullama/sdk/export.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/checked_math.h"
#include "core/gguf/dequantize.h"
#include "core/reference/graph_from_abi.h"
#include "core/reference/interpreter.h"

namespace rullama {
namespace {

using reference::Interpreter;
using reference::InterpreterOptions;
using reference::Tensor;

constexpr std::string_view kName = "reference";
constexpr std::string_view kVersion = "1.0.0";
constexpr std::string_view kVendor = "rullama";

rl_code CodeOf(const Error& error) {
  if (error.id == "run.cancelled") return RL_CANCELLED;
  if (error.kind == ErrorKind::kModelFile) return RL_UNSUPPORTED;
  if (error.kind == ErrorKind::kOutOfMemory) return RL_OUT_OF_MEMORY;
  return RL_INVALID_ARGUMENT;  // invalid input from the host
}

[[noreturn]] void Throw(const Error& error, uint32_t op_index = RL_NO_OP) {
  throw sdk::Error(CodeOf(error), error.ToString(), op_index);
}

template <typename T>
T ValueOrThrow(Result<T> result) {
  if (!result) Throw(result.error());
  return *std::move(result);
}

// Zeroed memory whose pages are not backed until they are touched. The arena is never touched.
class HostBuffer final : public sdk::Buffer {
 public:
  explicit HostBuffer(uint64_t bytes)
      : data_(static_cast<std::byte*>(std::calloc(static_cast<size_t>(bytes), 1))), bytes_(bytes) {
    if (data_ == nullptr) throw std::bad_alloc();
  }

  [[nodiscard]] std::span<std::byte> Range(uint64_t offset, uint64_t size) {
    if (!RangeFits(offset, size, bytes_)) {
      throw sdk::Error(
          RL_INVALID_ARGUMENT,
          fmt::format("bytes [{}, +{}) are outside a buffer of {} bytes", offset, size, bytes_));
    }
    return {data_.get() + offset, static_cast<size_t>(size)};
  }

 private:
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  std::unique_ptr<std::byte, Free> data_;
  uint64_t bytes_;
};

// A weight is read in place in the host's memory.
class HostWeight final : public sdk::Weight {
 public:
  explicit HostWeight(const rl_weight_desc& desc)
      : bytes_(static_cast<const std::byte*>(desc.data), static_cast<size_t>(desc.bytes)) {}
  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

// The times of the ops of a plan, which one thread runs one after another.
class OpTimes {
 public:
  explicit OpTimes(size_t ops) : indices_(ops) {
    std::iota(indices_.begin(), indices_.end(), uint32_t{0});
    records_.reserve(ops);
  }
  void Start() {
    records_.clear();
    begin_ = sdk::NowNanoseconds();
  }
  void After(OpIndex op) {
    const uint64_t now = sdk::NowNanoseconds();
    records_.push_back(
        {.ops = &indices_[op], .op_count = 1, .worker = 0, .begin = begin_, .end = now});
    begin_ = now;
  }
  [[nodiscard]] std::span<const rl_op_time> records() const { return records_; }

 private:
  std::vector<uint32_t> indices_;  // records point into it
  std::vector<rl_op_time> records_;
  uint64_t begin_ = 0;  // of the op that runs
};

class ReferencePlan final : public sdk::Plan {
 public:
  ReferencePlan(const sdk::GraphView& view, Graph graph, sdk::Host host)
      : times_(view.record_times() ? std::make_unique<OpTimes>(view.op_count()) : nullptr),
        interpreter_(MakeInterpreter(view, std::move(graph), host, times_.get())) {
    const Graph& g = interpreter_.graph();
    for (ValueId id = 0; id < g.values.size(); ++id) {
      const rl_value& value = view.value(id);
      if (value.lifetime == RL_LIFETIME_CONSTANT) continue;
      const bool first_state = g.value(id).state == id;
      const bool is_output = std::ranges::find(g.outputs, id, &Output::value) != g.outputs.end();
      if (value.lifetime != RL_LIFETIME_INPUT && !first_state && !is_output) continue;
      const std::span<std::byte> bytes = BytesOf(value, g.type(id).BytesAt(g.MaxExtents()));
      if (first_state) {
        ValueOrThrowStatus(interpreter_.BindStateMemory(id, bytes));
      } else {
        (is_output ? outputs_ : inputs_).push_back({id, bytes});
      }
    }
    stats_.compilations = 1;
  }

  void Execute(int64_t t, int64_t r) override {
    const Graph& graph = interpreter_.graph();
    const Extents extents{.t = t, .r = r};
    if (t < 1 || t > graph.max_t || r < 0 || r > graph.max_r) {
      throw sdk::Error(RL_INVALID_ARGUMENT,
                       fmt::format("T = {} and R = {} are outside 1 to {} and 0 to {}", t, r,
                                   graph.max_t, graph.max_r));
    }
    for (const Binding& input : inputs_) {
      const Value& value = graph.value(input.value);
      Tensor tensor;
      tensor.dtype = value.type.dtype;
      tensor.dims = reference::DimsAt(value.type, extents);
      tensor.packed = input.bytes.first(static_cast<size_t>(value.type.BytesAt(extents)));
      ValueOrThrowStatus(interpreter_.Bind(value.name, std::move(tensor)));
    }
    OpIndex failed = kNoOp;
    if (times_) times_->Start();
    if (const Status status = interpreter_.Run(extents, &failed); !status) {
      Throw(status.error(), failed);
    }
    for (const Binding& output : outputs_) {
      const Tensor& tensor = *interpreter_.Get(output.value);
      reference::PackElements(tensor, 0, tensor.elements(), tensor.dtype, 0, output.bytes);
    }
    ++stats_.executions;
    stats_.dispatches += graph.ops.size();
    stats_.allocations += graph.ops.size();  // one result or more for each op
  }

  [[nodiscard]] rl_plan_stats Stats() const override { return stats_; }

  [[nodiscard]] std::span<const rl_op_time> Times() override {
    return times_ ? times_->records() : std::span<const rl_op_time>();
  }

 private:
  struct Binding {
    ValueId value;
    std::span<std::byte> bytes;
  };

  static void ValueOrThrowStatus(const Status& status) {
    if (!status) Throw(status.error());
  }

  static std::span<std::byte> BytesOf(const rl_value& value, uint64_t bytes) {
    auto* buffer = sdk::BufferOf<HostBuffer>(value);
    if (buffer == nullptr || value.bytes < bytes) {
      throw sdk::Error(RL_INVALID_ARGUMENT, fmt::format("value '{}' has no storage of {} bytes",
                                                        sdk::View(value.name), bytes));
    }
    return buffer->Range(value.offset, bytes);
  }

  static Interpreter MakeInterpreter(const sdk::GraphView& view, Graph graph, sdk::Host host,
                                     OpTimes* times) {
    const auto provider = [&](std::string_view source, int64_t,
                              const TensorType& type) -> Result<Tensor> {
      for (uint32_t i = 0; i < view.value_count(); ++i) {
        const rl_value& value = view.value(i);
        if (value.lifetime != RL_LIFETIME_CONSTANT || sdk::View(value.name) != source) continue;
        const auto* weight = sdk::WeightOf<HostWeight>(value);
        if (weight == nullptr) break;
        Tensor tensor;
        tensor.dtype = type.dtype;
        tensor.dims = reference::DimsAt(type, {});
        tensor.packed = weight->bytes();
        return tensor;
      }
      return MakeError(ErrorKind::kRuntime, "ref.constant", "constant '{}' has no weight", source);
    };
    InterpreterOptions options{.keep_all = false, .cancelled = [host] { return host.Cancelled(); }};
    if (times != nullptr) options.after_op = [times](OpIndex op) { times->After(op); };
    return ValueOrThrow(Interpreter::Create(std::move(graph), provider, std::move(options)));
  }

  std::unique_ptr<OpTimes> times_;  // null unless they are recorded; the interpreter refers to it
  Interpreter interpreter_;
  std::vector<Binding> inputs_;
  std::vector<Binding> outputs_;
  rl_plan_stats stats_{};
};

class ReferenceDevice final : public sdk::Device {
 public:
  explicit ReferenceDevice(sdk::Host host) : host_(host) {}

  // Every op is supported, except with weights of types that cannot be decoded.
  std::vector<sdk::OpSupport> QueryOps(const sdk::GraphView& view) override {
    std::vector<sdk::OpSupport> answers(view.op_count());
    for (uint32_t i = 0; i < view.op_count(); ++i) {
      const rl_op& op = view.op(i);
      answers[i].supported = FindOp(static_cast<OpKind>(op.kind)) != nullptr;
      if (!answers[i].supported) answers[i].reason = fmt::format("unknown op kind {}", op.kind);
      for (uint32_t j = 0; answers[i].supported && j < op.input_count; ++j) {
        const rl_value* value = view.input(op, j);
        if (value == nullptr || IsReadable(value->dtype)) continue;
        const DTypeInfo* dtype = FindDType(value->dtype);
        answers[i] = {false, fmt::format("cannot decode '{}' of type {}", sdk::View(value->name),
                                         dtype == nullptr ? fmt::format("{}", value->dtype)
                                                          : std::string(dtype->name))};
      }
    }
    return answers;
  }

  sdk::WeightLayout LayoutWeight(const rl_weight_desc&) override { return {true, 0}; }

  std::unique_ptr<sdk::Weight> CreateWeight(const rl_weight_desc& desc) override {
    if (!IsReadable(desc.dtype)) {
      throw sdk::Error(RL_UNSUPPORTED,
                       fmt::format("weight '{}' has dtype {}, which cannot be decoded; known are "
                                   "{}",
                                   sdk::View(desc.name), desc.dtype, DequantizableTypes()));
    }
    return std::make_unique<HostWeight>(desc);
  }

  std::unique_ptr<sdk::Buffer> CreateBuffer(uint64_t bytes, rl_buffer_usage) override {
    return std::make_unique<HostBuffer>(bytes);
  }

  void Write(sdk::Buffer& buffer, uint64_t offset, std::span<const std::byte> data) override {
    const auto range = static_cast<HostBuffer&>(buffer).Range(offset, data.size());
    std::ranges::copy(data, range.begin());
  }

  void Read(sdk::Buffer& buffer, uint64_t offset, std::span<std::byte> data) override {
    std::ranges::copy(static_cast<HostBuffer&>(buffer).Range(offset, data.size()), data.begin());
  }

  std::unique_ptr<sdk::Plan> Compile(const sdk::GraphView& view) override {
    return std::make_unique<ReferencePlan>(view, ValueOrThrow(reference::GraphFromAbi(view)),
                                           host_);
  }

 private:
  static bool IsReadable(uint32_t dtype) {
    return FindDType(dtype) != nullptr && CanDequantize(static_cast<DType>(dtype));
  }

  sdk::Host host_;
};

class ReferenceBackend final : public sdk::Backend {
 public:
  explicit ReferenceBackend(sdk::Host host) : Backend(host) {}

  [[nodiscard]] std::string_view name() const override { return kName; }
  [[nodiscard]] std::string_view version() const override { return kVersion; }
  [[nodiscard]] std::string_view vendor() const override { return kVendor; }
  [[nodiscard]] const std::vector<sdk::DeviceInfo>& Devices() override { return devices_; }

  std::unique_ptr<sdk::Device> Open(uint32_t, std::span<const sdk::Option> options) override {
    if (!options.empty()) {
      throw sdk::Error(RL_INVALID_ARGUMENT,
                       fmt::format("unknown option '{}'; the reference has none", options[0].key));
    }
    return std::make_unique<ReferenceDevice>(host());
  }

 private:
  std::vector<sdk::DeviceInfo> devices_{
      {.type = RL_DEVICE_CPU, .name = "float64 interpreter", .driver = "none", .alignment = 8}};
};

}  // namespace

int32_t ReferencePluginQuery(const rl_host_v1* host, const rl_plugin_v1** plugin, rl_error* error) {
  return RULLAMA_BACKEND_QUERY(ReferenceBackend)(host, plugin, error);
}

}  // namespace rullama
