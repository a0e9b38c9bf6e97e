// A complete small backend against the installed SDK: one device in host memory that runs `copy`
// and the unary op `neg`. Where to start for a new backend.
#include <rullama/sdk/export.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace {

namespace sdk = rullama::sdk;

struct HostBuffer : sdk::Buffer {
  explicit HostBuffer(uint64_t size) : bytes(size) {}
  std::vector<std::byte> bytes;
};

struct HostWeight : sdk::Weight {
  explicit HostWeight(const void* in_place) : data(in_place) {}
  const void* data;
};

bool IsSupported(const rl_op& op) {
  if (op.kind == RL_OP_copy) return true;
  return op.kind == RL_OP_unary && sdk::GraphView::attrs<rl_unary_attrs>(op).fn == RL_UNARY_NEG;
}

std::byte* AddressOf(const rl_value& value) {
  if (value.weight != nullptr) throw sdk::Error(RL_UNSUPPORTED, "operands may not be weights");
  return sdk::BufferOf<HostBuffer>(value)->bytes.data() + value.offset;
}

class SamplePlan : public sdk::Plan {
 public:
  explicit SamplePlan(const sdk::GraphView& graph) {
    for (uint32_t i = 0; i < graph.op_count(); ++i) {
      const sdk::OpScope scope(i);  // an error in here names op i
      const rl_op& op = graph.op(i);
      if (!IsSupported(op)) throw sdk::Error(RL_UNSUPPORTED, "only copy and neg");
      const rl_value& result = graph.result(op);
      steps_.push_back(
          {op.kind == RL_OP_unary, AddressOf(*graph.input(op, 0)), AddressOf(result), result});
    }
  }

  void Execute(int64_t t, int64_t r) override {
    for (const Step& step : steps_) {
      uint64_t elements = 1;
      for (uint32_t axis = 0; axis < step.result.rank; ++axis) {
        elements *= static_cast<uint64_t>(sdk::DimAt(step.result.dims[axis], t, r));
      }
      const auto dtype = static_cast<rullama::DType>(step.result.dtype);
      std::memmove(step.to, step.from, rullama::RowBytes(dtype, elements));
      if (!step.negate) continue;
      auto* values = reinterpret_cast<float*>(step.to);
      for (uint64_t i = 0; i < elements; ++i) values[i] = -values[i];
    }
    ++executions_;
  }

  [[nodiscard]] rl_plan_stats Stats() const override {
    rl_plan_stats stats{};
    stats.executions = executions_;
    stats.dispatches = executions_ * steps_.size();
    return stats;
  }

 private:
  struct Step {
    bool negate;
    const std::byte* from;
    std::byte* to;
    rl_value result;  // a copy; its pointers are not used
  };
  std::vector<Step> steps_;
  uint64_t executions_ = 0;
};

class SampleDevice : public sdk::Device {
 public:
  std::vector<sdk::OpSupport> QueryOps(const sdk::GraphView& graph) override {
    std::vector<sdk::OpSupport> support(graph.op_count());
    for (uint32_t i = 0; i < graph.op_count(); ++i) {
      support[i].supported = IsSupported(graph.op(i));
      if (!support[i].supported) support[i].reason = "only copy and neg";
    }
    return support;
  }
  sdk::WeightLayout LayoutWeight(const rl_weight_desc&) override { return {true, 0}; }
  std::unique_ptr<sdk::Weight> CreateWeight(const rl_weight_desc& desc) override {
    return std::make_unique<HostWeight>(desc.data);
  }
  std::unique_ptr<sdk::Buffer> CreateBuffer(uint64_t bytes, rl_buffer_usage) override {
    return std::make_unique<HostBuffer>(bytes);
  }
  void Write(sdk::Buffer& buffer, uint64_t offset, std::span<const std::byte> data) override {
    std::memcpy(Range(buffer, offset, data.size()), data.data(), data.size());
  }
  void Read(sdk::Buffer& buffer, uint64_t offset, std::span<std::byte> data) override {
    std::memcpy(data.data(), Range(buffer, offset, data.size()), data.size());
  }
  std::unique_ptr<sdk::Plan> Compile(const sdk::GraphView& graph) override {
    return std::make_unique<SamplePlan>(graph);
  }

 private:
  static std::byte* Range(sdk::Buffer& buffer, uint64_t offset, uint64_t size) {
    std::vector<std::byte>& bytes = static_cast<HostBuffer&>(buffer).bytes;
    if (offset > bytes.size() || size > bytes.size() - offset) {
      throw sdk::Error(RL_INVALID_ARGUMENT, "the range ends beyond the buffer");
    }
    return bytes.data() + offset;
  }
};

class SampleBackend : public sdk::Backend {
 public:
  using Backend::Backend;
  [[nodiscard]] std::string_view name() const override { return "sample"; }
  [[nodiscard]] std::string_view version() const override { return "1.0.0"; }
  [[nodiscard]] std::string_view vendor() const override { return "example"; }
  [[nodiscard]] const std::vector<sdk::DeviceInfo>& Devices() override { return devices_; }
  std::unique_ptr<sdk::Device> Open(uint32_t, std::span<const sdk::Option> options) override {
    if (!options.empty()) {
      throw sdk::Error(RL_INVALID_ARGUMENT,
                       "unknown option '" + options[0].key + "'; there are no options");
    }
    return std::make_unique<SampleDevice>();
  }

 private:
  std::vector<sdk::DeviceInfo> devices_ = {
      {.type = RL_DEVICE_CPU, .name = "host memory", .driver = "sample"}};
};

}  // namespace

RULLAMA_EXPORT_BACKEND(SampleBackend)
