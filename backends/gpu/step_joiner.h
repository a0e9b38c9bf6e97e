// An extra of drivers: whole steps of one row as one dispatch, of kernels that are joined into one.
//
// Thread safety: none; used under the host's lock on the device.
#pragma once

#include <memory>
#include <span>

#include "backends/gpu/dispatch.h"

namespace rullama::gpu {

// Kernels that a driver has joined into one, or joins on a thread of its own.
class JoinedKernels {
 public:
  virtual ~JoinedKernels() = default;
  // Waits until they are joined, or that has failed.
  virtual void Wait() noexcept = 0;
};

class StepJoiner {
 public:
  virtual ~StepJoiner() = default;
  // Joins kernels of one workgroup size. Null if this device cannot run them as one.
  virtual std::unique_ptr<JoinedKernels> Join(std::span<const PipelineKey> kinds) = 0;
};

}  // namespace rullama::gpu
