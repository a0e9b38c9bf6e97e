// Kernels by shader and constants, compiled when a plan first needs them and kept until the device
// is closed. What the driver makes of them lives in the host's cache between runs.
//
// Thread safety: none; used under the host's lock on the device.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "backends/gpu/driver.h"

namespace rullama::gpu {

class KernelCache {
 public:
  // Gives the driver what the host has kept.
  explicit KernelCache(Driver& driver);
  ~KernelCache();  // hands new kernels to the host
  KernelCache(const KernelCache&) = delete;
  KernelCache& operator=(const KernelCache&) = delete;

  // Compiles those that are missing, on several threads. Returns how many. Errors: as
  // Driver::Compile; kernels that were compiled stay, and are handed to the host in the end.
  uint64_t Prepare(std::span<const PipelineKey> keys);
  // One that was prepared.
  [[nodiscard]] const Kernel& Get(const PipelineKey& key) const;
  // These kernels as one, or null if the driver cannot join them.
  JoinedKernels* Join(StepJoiner& joiner, std::span<const PipelineKey> kinds);

 private:
  void Save() noexcept;

  Driver& driver_;
  Kernels kernels_;  // by Driver::CompiledKey
  std::map<std::vector<PipelineKey>, std::unique_ptr<JoinedKernels>> joined_;
  bool changed_ = false;
};

}  // namespace rullama::gpu
