// An extra of drivers: whole steps of one row, or of several side by side, as one dispatch of
// kernels that are joined into one.
//
// Thread safety: none; used under the host's lock on the device.
#pragma once

#include <rullama/sdk/backend.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backends/gpu/dispatch.h"
#include "backends/gpu/target.h"

namespace rullama::gpu {

class BlockMemory;
class Commands;

// What the word of a step that names a failed op says if its workgroups waited for one another in
// vain.
inline constexpr auto kStuckStep = static_cast<uint32_t>(StepWord::kStuckStep);

// Kernels that a driver has joined into one, or joins on a thread of its own.
class JoinedKernels {
 public:
  virtual ~JoinedKernels() = default;
  // Whether they are joined, or that has failed. Until then their steps are many dispatches.
  [[nodiscard]] virtual bool IsReady() const noexcept = 0;
  // Waits until then.
  virtual void Wait() noexcept = 0;
};

// The dispatches of a step.
struct JoinedStep {
  JoinedKernels& kernels;              // of these kinds; outlive the commands
  std::span<const PipelineKey> kinds;  // schedule.h
  std::span<const Dispatch> dispatches;
  std::span<const uint32_t> levels;  // of each dispatch (schedule.h)
  DeviceAddress step = 0;            // StepWords
};

struct JoinedCommands {
  std::unique_ptr<Commands> commands = {};
  uint64_t allocations = 0, bytes = 0;  // of device memory
};

class StepJoiner {
 public:
  virtual ~StepJoiner() = default;
  // What a graph is lowered for whose steps are to be one dispatch, or nothing if they are not
  // worth it. `device`: what all other graphs are lowered for.
  [[nodiscard]] virtual std::optional<Target> TargetFor(const Target& device,
                                                        const sdk::GraphView& graph) const = 0;
  // Makes dispatches of such a graph have fewer kinds of kernels.
  virtual void MergeKinds(std::vector<Dispatch>& dispatches) const = 0;
  // Joins kernels of one workgroup size. Null if this device cannot run them as one.
  virtual std::unique_ptr<JoinedKernels> Join(std::span<const PipelineKey> kinds) = 0;
  // The commands may be submitted once the kernels are ready; that throws the error of kernels that
  // could not be joined.
  virtual JoinedCommands Record(const JoinedStep& step, BlockMemory& blocks) = 0;
  // The error of a step whose failed op is kStuckStep.
  [[nodiscard]] virtual sdk::Error StuckError() const = 0;
};

}  // namespace rullama::gpu
