// Kernels by shader and constants, compiled when a plan first needs them and kept until the device
// is closed. What the driver makes of them lives in the host's cache between runs, also if the
// process is killed.
//
// Thread safety: none; used under the host's lock on the device.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "backends/gpu/driver.h"

namespace rullama::gpu {

class KernelCache {
 public:
  // How often new kernels are handed to the host while others are compiled.
  static constexpr std::chrono::milliseconds kSavePeriod{3000};

  // Gives the driver what the host has kept.
  explicit KernelCache(Driver& driver, std::chrono::milliseconds save_period = kSavePeriod);
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
  // Leaves changed_ as it is if the host did not keep them.
  void Save() noexcept;
  void SaveNowAndThen() noexcept;

  Driver& driver_;
  const std::chrono::milliseconds save_period_;
  std::chrono::steady_clock::time_point saved_ = std::chrono::steady_clock::now();
  Kernels kernels_;  // by Driver::CompiledKey
  std::map<std::vector<PipelineKey>, std::unique_ptr<JoinedKernels>> joined_;
  bool changed_ = false;
};

}  // namespace rullama::gpu
