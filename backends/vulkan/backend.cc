// The Vulkan backend: devices, options, and the objects the host holds.
#include "backends/gpu/backend.h"

#include <rullama/sdk/backend.h>
#include <rullama/sdk/export.h>

#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "backends/gpu/device.h"
#include "backends/gpu/options.h"
#include "backends/vulkan/driver.h"
#include "backends/vulkan/instance.h"
#include "backends/vulkan/target.h"

namespace rullama::vulkan {
namespace {

struct Settings {
  DriverOptions driver;
  gpu::CommonSettings common = {};
};

// Whether steps of one row can be one dispatch (persistent.h).
bool CanPersist(const Facts& facts) { return facts.memory_model && facts.subgroup_arithmetic; }
// Whether they are unless someone says otherwise: on devices of known size, since all workgroups
// have to run at the same time. A CPU would run one of them.
bool PersistsByDefault(const Facts& facts) {
  return CanPersist(facts) && facts.multiprocessors > 0 && !facts.IsSoftware();
}

std::string ExtensionName(MatrixExtension extension) {
  switch (extension) {
    case MatrixExtension::kNv:
      return VK_NV_COOPERATIVE_MATRIX_EXTENSION_NAME;
    case MatrixExtension::kKhr:
      return VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME;
    case MatrixExtension::kNone:
      break;
  }
  return "no extension";
}

// The reasons why a device can use neither extension.
std::string LacksOf(const MatrixUnits& units) {
  return ExtensionName(MatrixExtension::kKhr) + ": " + units.khr_lacks + "; " +
         ExtensionName(MatrixExtension::kNv) + ": " + units.nv_lacks;
}

// The extension in use, or why there is none. `set`: whether the option cooperative_matrix is.
std::string TextOf(MatrixExtension extension, const MatrixUnits& units, bool set) {
  if (extension != MatrixExtension::kNone) return ExtensionName(extension);
  if (set) return "not used; the option cooperative_matrix is off";
  return "not used; " + LacksOf(units);
}

// `extension`, unless something is lacking.
MatrixExtension Require(const sdk::Option& option, const std::string& lacks,
                        MatrixExtension extension) {
  if (lacks.empty()) return extension;
  gpu::RefuseOption(option, "but the device cannot use " + ExtensionName(extension) + ": " + lacks +
                                "; leave the option out to use what the device has");
}

// The extension that an option names, or the device's best. Errors: RL_INVALID_ARGUMENT for
// another value, or where the device lacks what the shaders need.
MatrixExtension ParseMatrixExtension(const sdk::Option& option, const MatrixUnits& units) {
  if (option.value == "off") return MatrixExtension::kNone;
  if (option.value == "nv") return Require(option, units.nv_lacks, MatrixExtension::kNv);
  if (option.value == "khr") return Require(option, units.khr_lacks, MatrixExtension::kKhr);
  if (option.value != "on") gpu::RefuseOption(option, "expected on, off, nv or khr");
  const MatrixExtension best = units.Best();
  if (best != MatrixExtension::kNone) return best;
  gpu::RefuseOption(option, "but the device cannot use its matrix units; " + LacksOf(units) +
                                "; leave the option out to do without");
}

Settings ParseOptions(std::span<const sdk::Option> options, const Facts& facts) {
  Settings settings{{.matrix_extension = facts.matrix_units.Best(),
                     .subgroups = facts.subgroup_arithmetic,
                     .integer_dot = facts.fast_integer_dot && facts.subgroup_arithmetic,
                     .persistent = PersistsByDefault(facts)}};
  DriverOptions& driver = settings.driver;
  const bool arithmetic = facts.subgroup_arithmetic;
  gpu::Options table("vulkan", settings.common, facts.max_allocation);
  table.AddSwitch("integer_dot", driver.integer_dot, facts.integer_dot && arithmetic,
                  "dot products of bytes, or no subgroup arithmetic");
  table.AddSwitch("persistent", driver.persistent, CanPersist(facts),
                  "memory model of Vulkan, or no subgroup arithmetic");
  table.AddSwitch("subgroups", driver.subgroups, arithmetic, "subgroup arithmetic");
  table.Add("cooperative_matrix", [&](const sdk::Option& option) {
    driver.matrix_extension = ParseMatrixExtension(option, facts.matrix_units);
  });
  table.Read(options);
  if (driver.subgroups) return settings;
  for (const char* name : {"integer_dot", "persistent"}) {
    if (!gpu::IsSwitchedOn(options, name)) continue;
    throw sdk::Error(RL_INVALID_ARGUMENT, std::string("option ") + name +
                                              " is 'on', but needs subgroups, which are 'off'");
  }
  driver.integer_dot = driver.persistent = false;
  return settings;
}

rl_device_type TypeOf(const Facts& facts) {
  switch (facts.properties.deviceType) {
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU:
    case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU:
      return RL_DEVICE_GPU;
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU:
      return RL_DEVICE_INTEGRATED_GPU;
    case VK_PHYSICAL_DEVICE_TYPE_CPU:
      return RL_DEVICE_SOFTWARE;
    default:
      return RL_DEVICE_OTHER;
  }
}

class VulkanBackend final : public gpu::GpuBackend {
 public:
  explicit VulkanBackend(sdk::Host host) : GpuBackend(host, "vulkan") {}
  std::unique_ptr<sdk::Device> Open(uint32_t index, std::span<const sdk::Option> options) override {
    const PhysicalDevice& physical = instance_->devices()[index];
    const Settings settings = ParseOptions(options, physical.facts);
    const bool set =
        std::ranges::find(options, "cooperative_matrix", &sdk::Option::key) != options.end();
    host().Log(RL_LOG_INFO, "matrix units: " + TextOf(settings.driver.matrix_extension,
                                                      physical.facts.matrix_units, set));
    return std::make_unique<gpu::GpuDevice>(
        std::make_unique<VulkanDriver>(*instance_, physical, host(), settings.driver),
        settings.common);
  }

 private:
  gpu::DeviceList List() override {
    instance_ = std::make_unique<Instance>(host());
    gpu::DeviceList list{{}, instance_->reason()};
    for (const PhysicalDevice& device : instance_->devices()) {
      const Facts& facts = device.facts;
      sdk::DeviceInfo info = InfoOf(facts.max_allocation);
      info.type = TypeOf(facts);
      info.name = facts.properties.deviceName;
      info.driver = facts.driver;
      std::tie(info.memory_total, info.memory_free) = Instance::Memory(device);
      list.infos.push_back(std::move(info));
    }
    return list;
  }

  std::unique_ptr<Instance> instance_;  // made when devices are first asked for
};

}  // namespace
}  // namespace rullama::vulkan

RULLAMA_EXPORT_BACKEND(rullama::vulkan::VulkanBackend)
