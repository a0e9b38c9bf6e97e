// The OpenCL backend: devices, options, and the objects the host holds.
#include "backends/gpu/backend.h"

#include <rullama/sdk/backend.h>
#include <rullama/sdk/export.h>

#include <memory>
#include <string>
#include <utility>

#include "backends/gpu/device.h"
#include "backends/gpu/options.h"
#include "backends/opencl/driver.h"
#include "backends/opencl/instance.h"
#include "backends/opencl/target.h"

namespace rullama::opencl {
namespace {

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

class OpenClBackend final : public gpu::GpuBackend {
 public:
  explicit OpenClBackend(sdk::Host host) : GpuBackend(host, "opencl") {}
  std::unique_ptr<sdk::Device> Open(uint32_t index, std::span<const sdk::Option> options) override {
    const PhysicalDevice& physical = instance_->devices()[index];
    const Settings settings = ParseOptions(options, physical.facts);
    return std::make_unique<gpu::GpuDevice>(
        std::make_unique<OpenClDriver>(instance_->api(), physical, host(), settings.driver),
        settings.common);
  }

 private:
  gpu::DeviceList List() override {
    instance_ = std::make_unique<Instance>();
    gpu::DeviceList list{{}, instance_->reason()};
    for (const PhysicalDevice& device : instance_->devices()) {
      const Facts& facts = device.facts;
      sdk::DeviceInfo info = InfoOf(facts.max_allocation);
      info.type = TypeOf(facts);
      info.name = facts.name;
      info.driver = facts.driver;
      info.memory_total = facts.memory;
      list.infos.push_back(std::move(info));
    }
    return list;
  }

  std::unique_ptr<Instance> instance_;  // made when devices are first asked for
};

}  // namespace
}  // namespace rullama::opencl

RULLAMA_EXPORT_BACKEND(rullama::opencl::OpenClBackend)
