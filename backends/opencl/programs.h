// Kernels by shader and constants, built when first asked for and kept until the device is closed;
// their binaries live on disk between runs, by device, driver and source.
//
// Thread safety: none; used under the host's lock on the device.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/gpu/dispatch.h"
#include "backends/opencl/driver.h"

namespace rullama::opencl {

// The form in which kernels are written: a work-group is one work-item of a CPU, which takes
// vectors; or many that share local memory; or many with inline PTX for NVIDIA's compiler.
enum class Form : uint8_t { kCpu, kGeneric, kNvidia };

class Programs {
 public:
  // `cache`: whether binaries are kept on disk.
  Programs(OpenClDriver& driver, Form form, bool cache);
  ~Programs();  // saves the binaries
  Programs(const Programs&) = delete;
  Programs& operator=(const Programs&) = delete;

  // Builds those that are missing, on several threads. Returns how many. Errors: RL_INTERNAL with
  // the log of the driver's compiler.
  uint64_t Prepare(std::span<const gpu::PipelineKey> keys);
  // A kernel of one that was prepared, whose arguments nobody else sets.
  [[nodiscard]] Owned<cl_kernel> NewKernel(const gpu::PipelineKey& key) const;
  // The constants that its kernel is not built with but gets as its last argument; mostly empty.
  [[nodiscard]] std::vector<uint32_t> ArgumentsOf(const gpu::PipelineKey& key) const;
  [[nodiscard]] static std::string_view NameOf(gpu::Shader shader);

 private:
  using Binary = std::vector<std::byte>;

  // The key without what is no part of its program.
  [[nodiscard]] gpu::PipelineKey ProgramOf(const gpu::PipelineKey& key) const;
  [[nodiscard]] std::string OptionsOf(const gpu::PipelineKey& key) const;
  [[nodiscard]] uint64_t IdOf(const gpu::PipelineKey& key) const;
  [[nodiscard]] Owned<cl_program> Make(const gpu::PipelineKey& key) const;
  [[nodiscard]] Owned<cl_program> FromBinary(const gpu::PipelineKey& key) const;
  [[nodiscard]] std::string LogOf(cl_program program) const;
  [[nodiscard]] Binary BinaryOf(cl_program program) const;
  [[nodiscard]] std::string CacheName() const;
  void LoadCache();
  void SaveCache() noexcept;

  OpenClDriver& driver_;
  Form form_;
  bool cache_;
  std::map<gpu::PipelineKey, Owned<cl_program>> programs_;
  std::map<uint64_t, Binary> binaries_;  // from disk
  bool changed_ = false;
};

}  // namespace rullama::opencl
