// The CPU backend: one device, no driver. Weights of products are packed; others are read in place.
#include <rullama/sdk/backend.h>
#include <rullama/sdk/export.h>
#include <rullama/sdk/options.h>
#include <rullama/sdk/processor.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>

#include "backends/cpu/op_rows.h"
#include "backends/cpu/plan.h"

namespace rullama::cpu {
namespace {

constexpr std::string_view kThreadCounts = "1 to 256";
// The last number of a text.
constexpr int LastNumberOf(std::string_view text) {
  int number = 0;
  for (const char digit : text.substr(text.rfind(' ') + 1)) number = number * 10 + (digit - '0');
  return number;
}
constexpr int kMaxThreads = LastNumberOf(kThreadCounts);
// Copies of fewer bytes take less time than waking the workers.
constexpr size_t kParallelCopyBytes = size_t{1} << 20;

struct Settings {
  int threads;
  Isa isa;
  ActivationBits activation_bits;
  bool pack_weights;
};

Isa ParseIsa(const sdk::Option& option) {
  std::string names;
  for (size_t i = 0; i < kIsaCount; ++i) {
    const auto isa = static_cast<Isa>(i);
    if (!IsaAvailable(isa)) continue;
    if (option.value == IsaName(isa)) return isa;
    names += std::string(names.empty() ? "" : ", ") + IsaName(isa);
  }
  sdk::RefuseOption(option, "this processor can run: " + names);
}

ActivationBits ParseActivations(const sdk::Option& option) {
  if (option.value == "int16") return ActivationBits::k16;
  if (option.value == "int8") return ActivationBits::k8;
  sdk::RefuseOption(option, "expected int16 (close to float) or int8 (faster prompts)");
}

bool ParsePacked(const sdk::Option& option) {
  if (option.value == "packed" || option.value == "mapped") return option.value == "packed";
  sdk::RefuseOption(option,
                    "expected packed (rearranged in memory, faster) or mapped (read in place from "
                    "the file)");
}

constexpr sdk::OptionRow<Settings> kOptions[] = {
    {{"threads", kThreadCounts, "as many as physical cores", "workers, the caller included"},
     [](Settings& settings, const sdk::Option& option) {
       settings.threads = static_cast<int>(sdk::ParseCount(option, "a number", 1, kMaxThreads));
     }},
    {{"isa",
      "portable, avx2, avx-vnni, avx512, avx512-vnni, amx; on ARM portable, neon, neon-dotprod, "
      "neon-i8mm; in browsers wasm",
      "the best that the processor has", "instruction set of the kernels"},
     [](Settings& settings, const sdk::Option& option) { settings.isa = ParseIsa(option); }},
    {{"activations", "int16, int8", "int16",
      "how products with quantised weights round the other side: to 16 bits, or to 8, which is "
      "faster and less exact"},
     [](Settings& settings, const sdk::Option& option) {
       settings.activation_bits = ParseActivations(option);
     }},
    {{"weights", "packed, mapped", "packed",
      "weights of products are rearranged for the kernels, which takes as much memory as they have "
      "bytes and some time at the start; or all are read in place from the file, for models that "
      "memory has no room for"},
     [](Settings& settings, const sdk::Option& option) {
       settings.pack_weights = ParsePacked(option);
     }},
};

Settings ParseOptions(std::span<const sdk::Option> options) {
  Settings settings{std::min(kMaxThreads, sdk::PhysicalCores()), BestIsa(), ActivationBits::k16,
                    true};
  sdk::ReadOptions<Settings>("cpu", kOptions, options, settings);
  return settings;
}

class CpuDevice final : public sdk::Device {
 public:
  CpuDevice(sdk::Host host, const Settings& settings)
      : host_(host),
        kernels_(KernelsFor(settings.isa)),
        activation_bits_(settings.activation_bits),
        pack_(settings.pack_weights),
        pool_(settings.threads) {}

  std::vector<sdk::OpSupport> QueryOps(const sdk::GraphView& graph) override {
    return OpRows().Query(graph, kernels_);
  }

  sdk::WeightLayout LayoutWeight(const rl_weight_desc& desc) override {
    return Packs(desc) ? sdk::WeightLayout{false, desc.bytes} : sdk::WeightLayout{true, 0};
  }

  std::unique_ptr<sdk::Weight> CreateWeight(const rl_weight_desc& desc) override {
    if (Packs(desc)) return std::make_unique<CpuWeight>(kernels_, desc, arena_, pool_);
    return std::make_unique<CpuWeight>(desc.data);
  }

  std::unique_ptr<sdk::Buffer> CreateBuffer(uint64_t bytes, rl_buffer_usage /*usage*/) override {
    return std::make_unique<CpuBuffer>(bytes);
  }

  void Write(sdk::Buffer& buffer, uint64_t offset, std::span<const std::byte> data) override {
    CopyBytes(Range(buffer, offset, data.size()), data.data(), data.size());
  }

  void Read(sdk::Buffer& buffer, uint64_t offset, std::span<std::byte> data) override {
    CopyBytes(data.data(), Range(buffer, offset, data.size()), data.size());
  }

  std::unique_ptr<sdk::Plan> Compile(const sdk::GraphView& graph) override {
    return std::make_unique<CpuPlan>(graph, kernels_, activation_bits_, pool_, arena_, host_);
  }

 private:
  // One core does not move as many bytes as the memory can.
  void CopyBytes(std::byte* to, const std::byte* from, size_t bytes) {
    if (bytes < kParallelCopyBytes) {
      std::memcpy(to, from, bytes);
      return;
    }
    const auto workers = static_cast<size_t>(pool_.workers());
    pool_.Share(workers, [&](size_t part) {
      const size_t begin = bytes * part / workers, end = bytes * (part + 1) / workers;
      std::memcpy(to + begin, from + begin, end - begin);
    });
  }

  [[nodiscard]] bool Packs(const rl_weight_desc& desc) const {
    return pack_ && (desc.uses & RL_WEIGHT_IN_PRODUCTS) != 0 && CanBePacked(kernels_, desc);
  }

  static std::byte* Range(sdk::Buffer& buffer, uint64_t offset, uint64_t size) {
    auto& memory = static_cast<CpuBuffer&>(buffer);
    if (offset > memory.size() || size > memory.size() - offset) {
      throw sdk::Error(RL_INVALID_ARGUMENT,
                       "copy outside the buffer of " + std::to_string(memory.size()) + " bytes");
    }
    return memory.data() + offset;
  }

  sdk::Host host_;
  const KernelTable& kernels_;
  ActivationBits activation_bits_;
  bool pack_;
  ThreadPool pool_;
  WeightArena arena_;
};

// The "model name" of /proc/cpuinfo, or "CPU" if there is none.
std::string ProcessorName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "CPU";
}

// Memory that is available to new allocations, in bytes: free memory and reclaimable caches. 0 if
// unknown.
uint64_t AvailableMemory() {
  constexpr std::string_view kKey = "MemAvailable:";
  std::ifstream file("/proc/meminfo");
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind(kKey, 0) == 0)
      return std::strtoull(line.c_str() + kKey.size(), nullptr, 10) * 1024;
  }
  return 0;
}

class CpuBackend final : public sdk::Backend {
 public:
  explicit CpuBackend(sdk::Host host) : Backend(host) {
    sdk::DeviceInfo info;
    info.type = RL_DEVICE_CPU;
    info.name = ProcessorName();
    info.driver = std::string("kernels for ") + IsaName(BestIsa());
    const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    info.memory_total = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * page;
    info.memory_free = AvailableMemory();
    devices_.push_back(std::move(info));
  }
  [[nodiscard]] std::string_view name() const override { return "cpu"; }
  [[nodiscard]] std::string_view version() const override { return RULLAMA_VERSION; }
  [[nodiscard]] std::string_view vendor() const override { return "rullama"; }
  [[nodiscard]] const std::vector<sdk::DeviceInfo>& Devices() override { return devices_; }
  [[nodiscard]] std::vector<sdk::OptionInfo> Options() const override {
    return sdk::InfosOf<Settings>(kOptions);
  }
  std::unique_ptr<sdk::Device> Open(uint32_t /*index*/,
                                    std::span<const sdk::Option> options) override {
    return std::make_unique<CpuDevice>(host(), ParseOptions(options));
  }

 private:
  std::vector<sdk::DeviceInfo> devices_;
};

}  // namespace
}  // namespace rullama::cpu

RULLAMA_EXPORT_BACKEND(rullama::cpu::CpuBackend)
