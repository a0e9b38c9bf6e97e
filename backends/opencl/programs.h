// Programs by shader and constants: how they are built, and their binaries, by source and options.
//
// Thread safety: none but for Make(); used under the host's lock on the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backends/gpu/driver.h"
#include "backends/opencl/api.h"
#include "backends/opencl/target.h"

namespace rullama::opencl {

class OpenClDriver;

class Programs {
 public:
  // `driver` outlives it.
  Programs(const OpenClDriver& driver, Form form) : driver_(driver), form_(form) {}
  Programs(const Programs&) = delete;
  Programs& operator=(const Programs&) = delete;

  // The program of a key that ProgramOf() gave, built or from its binary. Any number of threads may
  // call it at a time. Errors: RL_INTERNAL with the log of the driver's compiler.
  [[nodiscard]] std::unique_ptr<gpu::Kernel> Make(const gpu::PipelineKey& key) const;
  // The key without the constants that are passed as arguments.
  [[nodiscard]] gpu::PipelineKey ProgramOf(const gpu::PipelineKey& key) const;
  // A new kernel object of the program of this key, not shared with other plans.
  [[nodiscard]] Owned<cl_kernel> NewKernel(const gpu::Kernel& program,
                                           const gpu::PipelineKey& key) const;
  // The constants that its kernel is not built with but gets as its last argument; mostly empty.
  [[nodiscard]] std::vector<uint32_t> ArgumentsOf(const gpu::PipelineKey& key) const;
  // Takes binaries that BinariesOf() gave.
  void Load(std::span<const std::byte> saved);
  // The binaries of these programs, and those that were loaded.
  [[nodiscard]] std::vector<std::byte> BinariesOf(const gpu::Kernels& programs);

 private:
  using Binary = std::vector<std::byte>;

  [[nodiscard]] std::string OptionsOf(const gpu::PipelineKey& key) const;
  [[nodiscard]] uint64_t IdOf(const gpu::PipelineKey& key) const;
  [[nodiscard]] Owned<cl_program> Build(const gpu::PipelineKey& key) const;
  [[nodiscard]] Owned<cl_program> FromBinary(const gpu::PipelineKey& key) const;
  [[nodiscard]] std::string LogOf(cl_program program) const;
  [[nodiscard]] Binary BinaryOf(cl_program program) const;

  const OpenClDriver& driver_;
  Form form_;
  std::map<uint64_t, Binary> binaries_;  // by IdOf
};

}  // namespace rullama::opencl
