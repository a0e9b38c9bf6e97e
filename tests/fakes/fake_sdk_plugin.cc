// A plugin written against the SDK whose methods throw what RULLAMA_FAKE_SDK says:
// "<method>:<what>", with a method of sdk::Backend, sdk::Device or sdk::Plan ("Compile"),
// "construct", or a destructor
// ("~Device"), and what = error (an sdk::Error), error_ok, bad_alloc, std, int, long, null (returns
// a null object). Of Times also backwards, no_ops, unsorted and unknown_op, of Options also
// no_name, no_values and twice: a record that is wrong.
// Read at every call.
#include <rullama/sdk/export.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

namespace sdk = rullama::sdk;

constexpr int32_t kDriverCode = -42;

// The fault that the variable asks of this method; empty: none.
std::string_view FaultOf(std::string_view method) {
  const char* variable = std::getenv("RULLAMA_FAKE_SDK");
  if (variable == nullptr) return {};
  const std::string_view script(variable);
  const size_t colon = script.find(':');
  return script.substr(0, colon) == method ? script.substr(colon + 1) : std::string_view();
}

// Throws what the variable wants of this method; true if it is to return null.
bool Misbehave(std::string_view method) {
  const std::string_view what = FaultOf(method);
  if (what == "error") throw sdk::Error(RL_UNSUPPORTED, "no such luck", RL_NO_OP, kDriverCode);
  if (what == "error_ok") throw sdk::Error(RL_OK, "all is well");
  if (what == "bad_alloc") throw std::bad_alloc();
  if (what == "std") throw std::runtime_error("a standard exception");
  if (what == "int") throw 7;
  if (what == "long") {
    std::string text;
    while (text.size() < 2 * RL_ERROR_TEXT) text += "\xC3\xA9";  // a two-byte character
    throw std::runtime_error(text);
  }
  return what == "null";
}

struct FakeBuffer : sdk::Buffer {
  explicit FakeBuffer(uint64_t size) : bytes(size) {}
  std::vector<std::byte> bytes;
};

class FakePlan : public sdk::Plan {
 public:
  explicit FakePlan(const sdk::GraphView& graph) {
    if (graph.record_times() && graph.op_count() == 2) {
      times_.push_back({&ops_[0], 1, 0, 1000, 1500});
      times_.push_back({&ops_[0], 2, 1, 1200, 2000});
    }
    for (uint32_t i = 0; i < graph.op_count(); ++i) {
      const sdk::OpScope scope(i);
      if (graph.op(i).kind != RL_OP_copy) throw std::runtime_error("not a copy");
      (void)Misbehave("CompileOp");
    }
  }
  void Execute(int64_t, int64_t) override { (void)Misbehave("Execute"); }
  [[nodiscard]] rl_plan_stats Stats() const override {
    (void)Misbehave("Stats");
    return {};
  }
  // The first op on worker 0, then both as one on worker 1.
  [[nodiscard]] std::span<const rl_op_time> Times() override {
    (void)Misbehave("Times");
    if (times_.empty()) return times_;
    const std::string_view fault = FaultOf("Times");
    ops_ = {0, fault == "unknown_op" ? 2U : 1U};
    if (fault == "unsorted") ops_ = {1, 0};
    if (fault == "no_ops") times_[1].op_count = 0;
    if (fault == "backwards") times_[1].end = 0;
    return times_;
  }

 private:
  std::array<uint32_t, 2> ops_ = {0, 1};
  std::vector<rl_op_time> times_;  // none unless they are recorded
};

class FakeDevice : public sdk::Device {
 public:
  ~FakeDevice() override { (void)Misbehave("~Device"); }
  std::vector<sdk::OpSupport> QueryOps(const sdk::GraphView& graph) override {
    if (Misbehave("QueryOps")) return {};
    return std::vector<sdk::OpSupport>(graph.op_count(), {true, {}});
  }
  std::string DescribeGraph(const sdk::GraphView& graph) override {
    (void)Misbehave("DescribeGraph");
    return std::to_string(graph.op_count()) + " ops\n";
  }
  sdk::WeightLayout LayoutWeight(const rl_weight_desc&) override {
    (void)Misbehave("LayoutWeight");
    return {true, 0};
  }
  std::unique_ptr<sdk::Weight> CreateWeight(const rl_weight_desc&) override {
    if (Misbehave("CreateWeight")) return nullptr;
    return std::make_unique<sdk::Weight>();
  }
  std::unique_ptr<sdk::Buffer> CreateBuffer(uint64_t bytes, rl_buffer_usage) override {
    if (Misbehave("CreateBuffer")) return nullptr;
    return std::make_unique<FakeBuffer>(bytes);
  }
  void Write(sdk::Buffer& buffer, uint64_t offset, std::span<const std::byte> data) override {
    (void)Misbehave("Write");
    std::memcpy(static_cast<FakeBuffer&>(buffer).bytes.data() + offset, data.data(), data.size());
  }
  void Read(sdk::Buffer& buffer, uint64_t offset, std::span<std::byte> data) override {
    (void)Misbehave("Read");
    std::memcpy(data.data(), static_cast<FakeBuffer&>(buffer).bytes.data() + offset, data.size());
  }
  std::unique_ptr<sdk::Plan> Compile(const sdk::GraphView& graph) override {
    if (Misbehave("Compile")) return nullptr;
    return std::make_unique<FakePlan>(graph);
  }
  void Wait() override { (void)Misbehave("Wait"); }
};

class FakeBackend : public sdk::Backend {
 public:
  explicit FakeBackend(sdk::Host host) : Backend(host) {
    (void)Misbehave("construct");
    devices_.push_back({.type = RL_DEVICE_CPU, .name = "Fake SDK device", .driver = "none"});
  }
  [[nodiscard]] std::string_view name() const override { return "fake_sdk"; }
  [[nodiscard]] std::string_view version() const override { return "0.1"; }
  [[nodiscard]] std::string_view vendor() const override { return "rullama tests"; }
  [[nodiscard]] const std::vector<sdk::DeviceInfo>& Devices() override {
    (void)Misbehave("Devices");
    return devices_;
  }
  [[nodiscard]] std::vector<sdk::OptionInfo> Options() const override {
    (void)Misbehave("Options");
    const std::string_view fault = FaultOf("Options");
    return {{"speed", "slow, fast", "slow", "how fast it is"},
            {fault == "no_name" ? ""
             : fault == "twice" ? "speed"
                                : "colour",
             fault == "no_values" ? "" : "any", "", "what it looks like"}};
  }
  std::unique_ptr<sdk::Device> Open(uint32_t, std::span<const sdk::Option>) override {
    if (Misbehave("Open")) return nullptr;
    host().Log(RL_LOG_INFO, "open");
    return std::make_unique<FakeDevice>();
  }

 private:
  std::vector<sdk::DeviceInfo> devices_;
};

}  // namespace

RULLAMA_EXPORT_BACKEND(FakeBackend)
