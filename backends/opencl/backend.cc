// The OpenCL backend: devices, options, and the objects the host holds.
#include <rullama/sdk/backend.h>
#include <rullama/sdk/export.h>

#include <bit>
#include <memory>
#include <string>

#include "backends/gpu/device.h"
#include "backends/gpu/options.h"
#include "backends/opencl/driver.h"
#include "backends/opencl/instance.h"

namespace rullama::opencl {
namespace {

// Values begin at multiples of this: kernels read vectors of 16 bytes, caches have lines of 64.
constexpr uint32_t kAlignment = 64;
// Work-items that walk a long row together.
constexpr uint32_t kWideThreads = 256;
constexpr uint32_t kWideThreadsOfNvidia = 1024;
// Work-groups of 256 that a compute unit takes at a time; and for each core of a CPU, whose
// work-groups are one work-item, so that all cores are done at about the same time.
constexpr uint32_t kGroupsOfUnit = 4;
constexpr uint32_t kGroupsOfCore = 16;
// Local memory that a GEMV needs beside the row that it stages.
constexpr uint32_t kOtherLocalBytes = 8192;
constexpr uint32_t kWarp = 32;

struct Settings {
  Form form;
  bool cache;
  bool tensor_cores;
  gpu::CommonSettings common = {};
};

// Whether the device multiplies matrices of 16 x 8 x 16 in f16 (mma.sync).
bool HasTensorCores(const Capabilities& can) {
  constexpr uint32_t kAmpere = 80;
  return can.nvidia >= kAmpere;
}

// The kernels a device is best at.
Form FormFor(const Capabilities& can) {
  if (can.IsCpu()) return Form::kCpu;
  return can.nvidia > 0 ? Form::kNvidia : Form::kGeneric;
}

Form ParseForm(const sdk::Option& option, const Capabilities& can) {
  if (option.value == "cpu") return Form::kCpu;
  if (option.value == "generic") return Form::kGeneric;
  if (option.value != "nvidia") gpu::RefuseOption(option, "expected cpu, generic or nvidia");
  if (can.nvidia == 0) {
    gpu::RefuseOption(option, "but the device is '" + can.name +
                                  "', whose driver has no cl_nv_device_attribute_query");
  }
  return Form::kNvidia;
}

Settings ParseOptions(std::span<const sdk::Option> options, const Capabilities& can) {
  // Drivers of CPUs keep what they have compiled themselves. A file of ours would make a warm start
  // quicker, but PoCL compiles each program a second time before it hands out its binary.
  Settings settings{FormFor(can), !can.IsCpu(), HasTensorCores(can)};
  gpu::Options table("opencl", settings.common, can.max_allocation);
  table.Add("kernels", [&](const sdk::Option& option) { settings.form = ParseForm(option, can); });
  table.AddSwitch("cache", settings.cache);
  table.AddSwitch("tensor_cores", settings.tensor_cores, HasTensorCores(can),
                  "tensor cores of NVIDIA's, of compute capability 8.0 or later");
  table.Read(options);
  if (settings.form != Form::kNvidia && gpu::IsSwitchedOn(options, "tensor_cores")) {
    throw sdk::Error(RL_INVALID_ARGUMENT,
                     "option tensor_cores is 'on', but needs kernels to be 'nvidia'");
  }
  return settings;
}

gpu::Tuning TuningFor(const Capabilities& can, const Settings& settings) {
  gpu::Tuning tuning;
  tuning.profile = settings.common.profile;
  tuning.multiprocessors = can.compute_units;
  tuning.special_kernels = false;
  tuning.shared_bytes = static_cast<uint32_t>(std::min<uint64_t>(can.local_memory, UINT32_MAX));
  if (settings.form == Form::kCpu) {
    tuning.software = true;
    tuning.threads = tuning.wide = 1;
    tuning.few_groups = kGroupsOfCore * can.compute_units;
    return tuning;
  }
  tuning.software = can.IsCpu();
  tuning.subgroups = settings.form == Form::kNvidia;
  tuning.subgroup_size = tuning.subgroups ? kWarp : 1;
  tuning.cooperative_matrix = tuning.subgroups && settings.tensor_cores;
  tuning.precise_products = settings.common.precise_products;
  tuning.wide = static_cast<uint32_t>(std::min<size_t>(
      tuning.subgroups ? kWideThreadsOfNvidia : kWideThreads, std::bit_floor(can.max_work_group)));
  tuning.few_groups = kGroupsOfUnit * can.compute_units;
  tuning.max_prologue = (tuning.shared_bytes - kOtherLocalBytes) / sizeof(float);
  return tuning;
}

rl_device_type TypeOf(const Capabilities& can) {
  if (can.IsCpu()) return RL_DEVICE_SOFTWARE;
  if ((can.type & CL_DEVICE_TYPE_GPU) == 0) return RL_DEVICE_OTHER;
  return can.unified_memory ? RL_DEVICE_INTEGRATED_GPU : RL_DEVICE_GPU;
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
      const Capabilities& can = device.capabilities;
      sdk::DeviceInfo info;
      info.type = TypeOf(can);
      info.name = can.name;
      info.driver = can.driver;
      info.memory_total = can.memory;
      info.max_buffer_bytes = gpu::MaxBufferBytes(can.max_allocation);
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
    const Settings settings = ParseOptions(options, physical.capabilities);
    return std::make_unique<gpu::GpuDevice>(
        TuningFor(physical.capabilities, settings),
        std::make_unique<OpenClDriver>(instance_->api(), physical, host(),
                                       DriverOptions{settings.form, settings.cache}),
        settings.common.weight_piece);
  }

 private:
  std::unique_ptr<Instance> instance_;  // made when devices are first asked for
  std::vector<sdk::DeviceInfo> infos_;
};

}  // namespace
}  // namespace rullama::opencl

RULLAMA_EXPORT_BACKEND(rullama::opencl::OpenClBackend)
