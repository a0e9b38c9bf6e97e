// The OpenCL backend: devices, options, and the objects the host holds.
#include <rullama/sdk/backend.h>
#include <rullama/sdk/export.h>

#include <memory>
#include <string>

#include "backends/gpu/device.h"
#include "backends/gpu/options.h"
#include "backends/opencl/driver.h"
#include "backends/opencl/instance.h"
#include "backends/opencl/target.h"

namespace rullama::opencl {
namespace {

// Values begin at multiples of this: kernels read vectors of 16 bytes, caches have lines of 64.
constexpr uint32_t kAlignment = 64;

struct Settings {
  DriverOptions driver;
  gpu::CommonSettings common = {};
};

// The kernels a device is best at.
Form FormFor(const Facts& facts) {
  if (facts.IsCpu()) return Form::kCpu;
  return facts.nvidia > 0 ? Form::kNvidia : Form::kGeneric;
}

Form ParseForm(const sdk::Option& option, const Facts& facts) {
  if (option.value == "cpu") return Form::kCpu;
  if (option.value == "generic") return Form::kGeneric;
  if (option.value != "nvidia") gpu::RefuseOption(option, "expected cpu, generic or nvidia");
  if (facts.nvidia == 0) {
    gpu::RefuseOption(option, "but the device is '" + facts.name +
                                  "', whose driver has no cl_nv_device_attribute_query");
  }
  return Form::kNvidia;
}

Settings ParseOptions(std::span<const sdk::Option> options, const Facts& facts) {
  // Drivers of CPUs keep what they have compiled themselves. A file of ours would make a warm start
  // quicker, but PoCL compiles each program a second time before it hands out its binary.
  Settings settings{{FormFor(facts), !facts.IsCpu(), HasTensorCores(facts)}};
  DriverOptions& driver = settings.driver;
  gpu::Options table("opencl", settings.common, facts.max_allocation);
  table.Add("kernels", [&](const sdk::Option& option) { driver.form = ParseForm(option, facts); });
  table.AddSwitch("cache", driver.cache);
  table.AddSwitch("tensor_cores", driver.tensor_cores, HasTensorCores(facts),
                  "tensor cores of NVIDIA's, of compute capability 8.0 or later");
  table.Read(options);
  if (driver.form != Form::kNvidia && gpu::IsSwitchedOn(options, "tensor_cores")) {
    throw sdk::Error(RL_INVALID_ARGUMENT,
                     "option tensor_cores is 'on', but needs kernels to be 'nvidia'");
  }
  return settings;
}

rl_device_type TypeOf(const Facts& facts) {
  if (facts.IsCpu()) return RL_DEVICE_SOFTWARE;
  if ((facts.type & CL_DEVICE_TYPE_GPU) == 0) return RL_DEVICE_OTHER;
  return facts.unified_memory ? RL_DEVICE_INTEGRATED_GPU : RL_DEVICE_GPU;
}

class OpenClBackend final : public sdk::Backend {
 public:
  explicit OpenClBackend(sdk::Host host) : Backend(host) {}
  [[nodiscard]] std::string_view name() const override { return "opencl"; }
  [[nodiscard]] std::string_view version() const override { return RULLAMA_VERSION; }
  [[nodiscard]] std::string_view vendor() const override { return "rullama"; }

  [[nodiscard]] const std::vector<sdk::DeviceInfo>& Devices() override {
    if (instance_) return infos_;
    instance_ = std::make_unique<Instance>();
    for (const PhysicalDevice& device : instance_->devices()) {
      const Facts& facts = device.facts;
      sdk::DeviceInfo info;
      info.type = TypeOf(facts);
      info.name = facts.name;
      info.driver = facts.driver;
      info.memory_total = facts.memory;
      info.max_buffer_bytes = gpu::MaxBufferBytes(facts.max_allocation);
      info.alignment = kAlignment;
      infos_.push_back(std::move(info));
    }
    return infos_;
  }
  [[nodiscard]] std::string_view NoDeviceReason() override {
    return instance_ ? std::string_view(instance_->reason()) : std::string_view();
  }
  std::unique_ptr<sdk::Device> Open(uint32_t index, std::span<const sdk::Option> options) override {
    const PhysicalDevice& physical = instance_->devices()[index];
    const Settings settings = ParseOptions(options, physical.facts);
    return std::make_unique<gpu::GpuDevice>(
        std::make_unique<OpenClDriver>(instance_->api(), physical, host(), settings.driver),
        settings.common);
  }

 private:
  std::unique_ptr<Instance> instance_;  // made when devices are first asked for
  std::vector<sdk::DeviceInfo> infos_;
};

}  // namespace
}  // namespace rullama::opencl

RULLAMA_EXPORT_BACKEND(rullama::opencl::OpenClBackend)
