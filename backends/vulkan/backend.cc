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

using Settings = gpu::OptionsOf<Facts, DriverOptions>;

// Whether steps of one row can be one dispatch (persistent.h).
bool CanPersist(const Facts& facts) { return facts.memory_model && facts.subgroup_arithmetic; }
// Whether they are unless someone says otherwise: on devices of known size, since all workgroups
// have to run at the same time. A CPU would run one of them.
bool PersistsByDefault(const Facts& facts) {
  return CanPersist(facts) && facts.multiprocessors > 0 && !facts.IsSoftware();
}

// The name of the extension, which is kNv or kKhr.
std::string ExtensionName(MatrixExtension extension) {
  return extension == MatrixExtension::kNv ? VK_NV_COOPERATIVE_MATRIX_EXTENSION_NAME
                                           : VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME;
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
  sdk::RefuseOption(option, "but the device cannot use " + ExtensionName(extension) + ": " + lacks +
                                "; leave the option out to use what the device has");
}

// The extension that an option names, or the device's best. Errors: RL_INVALID_ARGUMENT for
// another value, or where the device lacks what the shaders need.
MatrixExtension ParseMatrixExtension(const sdk::Option& option, const MatrixUnits& units) {
  if (option.value == "off") return MatrixExtension::kNone;
  if (option.value == "nv") return Require(option, units.nv_lacks, MatrixExtension::kNv);
  if (option.value == "khr") return Require(option, units.khr_lacks, MatrixExtension::kKhr);
  if (option.value != "on") sdk::RefuseOption(option, "expected on, off, nv or khr");
  const MatrixExtension best = units.Best();
  if (best != MatrixExtension::kNone) return best;
  sdk::RefuseOption(option, "but the device cannot use its matrix units; " + LacksOf(units) +
                                "; leave the option out to do without");
}

// Rows whose names other code has, too.
constexpr std::string_view kCooperativeMatrix = "cooperative_matrix";
constexpr std::string_view kIntegerDot = "integer_dot";
constexpr std::string_view kPersistent = "persistent";

const std::vector<sdk::OptionRow<Settings>>& OptionRows() {
  using sdk::Option;
  static const auto kRows = gpu::WithCommonRows<Settings>(
      {{{"subgroups", "on, off", "on where the device has them",
         "operations across a subgroup, instead of shared memory alone"},
        [](Settings& settings, const Option& option) {
          settings.driver.subgroups = gpu::ParseSwitchFor(
              option, settings.facts.subgroup_arithmetic, "subgroup arithmetic");
        }},
       {{kCooperativeMatrix, "on, off, nv, khr", "on where the device can",
         "products and attention of many rows on matrix units, in f16: through "
         "VK_KHR_cooperative_matrix, else VK_NV_cooperative_matrix, or the one that is named"},
        [](Settings& settings, const Option& option) {
          settings.driver.matrix_extension =
              ParseMatrixExtension(option, settings.facts.matrix_units);
        }},
       {{kIntegerDot, "on, off", "on where the device has it in one instruction",
         "products of one row by dot products of bytes: activations in 16 bits"},
        [](Settings& settings, const Option& option) {
          const Facts& facts = settings.facts;
          settings.driver.integer_dot =
              gpu::ParseSwitchFor(option, facts.integer_dot && facts.subgroup_arithmetic,
                                  "dot products of bytes, or no subgroup arithmetic");
        }},
       {{kPersistent, "on, off", "on on NVIDIA's and AMD's GPUs",
         "a step of one row is one dispatch; models whose experts are in f32, f16 or bf16 take "
         "many in any case"},
        [](Settings& settings, const Option& option) {
          settings.driver.persistent =
              gpu::ParseSwitchFor(option, CanPersist(settings.facts),
                                  "memory model of Vulkan, or no subgroup arithmetic");
        }}},
      "products with the rows of a weight, and attention of image towers and of 16 rows or more "
      "with heads of 256 or 512 dims, take an activation on matrix units as the sum of two f16 "
      "numbers, nearly as exact as f32, at about half the speed, and products with its columns "
      "(gradients, soft embeddings) are computed in f32; the forward pass of a mixture of experts "
      "in training always takes two numbers");
  return kRows;
}

Settings ParseOptions(std::span<const sdk::Option> options, const Facts& facts) {
  Settings settings{facts,
                    {.matrix_extension = facts.matrix_units.Best(),
                     .subgroups = facts.subgroup_arithmetic,
                     .integer_dot = facts.fast_integer_dot && facts.subgroup_arithmetic,
                     .persistent = PersistsByDefault(facts)}};
  sdk::ReadOptions<Settings>("vulkan", OptionRows(), options, settings);
  DriverOptions& driver = settings.driver;
  if (driver.subgroups) return settings;
  for (const std::string_view name : {kIntegerDot, kPersistent}) {
    if (!gpu::IsSwitchedOn(options, name)) continue;
    throw sdk::Error(RL_INVALID_ARGUMENT, "option " + std::string(name) +
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

class VulkanBackend final : public gpu::GpuBackend<Instance> {
 public:
  explicit VulkanBackend(sdk::Host host)
      : GpuBackend(host, "vulkan", sdk::InfosOf<Settings>(OptionRows())) {}
  std::unique_ptr<sdk::Device> Open(uint32_t index, std::span<const sdk::Option> options) override {
    const PhysicalDevice& physical = instance().devices()[index];
    const Settings settings = ParseOptions(options, physical.facts);
    const bool set =
        std::ranges::find(options, kCooperativeMatrix, &sdk::Option::key) != options.end();
    host().Log(RL_LOG_INFO, "matrix units: " + TextOf(settings.driver.matrix_extension,
                                                      physical.facts.matrix_units, set));
    return std::make_unique<gpu::GpuDevice>(
        std::make_unique<VulkanDriver>(instance(), physical, host(), settings.driver),
        settings.common);
  }

 private:
  std::unique_ptr<Instance> Find() override { return std::make_unique<Instance>(host()); }
  [[nodiscard]] sdk::DeviceInfo Describe(const PhysicalDevice& device) const override {
    const Facts& facts = device.facts;
    sdk::DeviceInfo info =
        InfoOf(TypeOf(facts), facts.properties.deviceName, facts.driver, facts.max_allocation);
    std::tie(info.memory_total, info.memory_free) = Instance::Memory(device);
    return info;
  }
};

}  // namespace
}  // namespace rullama::vulkan

RULLAMA_EXPORT_BACKEND(rullama::vulkan::VulkanBackend)
