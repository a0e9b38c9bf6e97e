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

enum class JoinState : uint8_t {
  kWaiting,  // for the driver; until then steps are many dispatches
  kReady,    // joined, or that has failed
  kRefused,  // the device cannot run them as one, or they were given up
};

// Kernels that a driver has joined into one, or joins while steps run.
class JoinedKernels {
 public:
  virtual ~JoinedKernels() = default;
  [[nodiscard]] virtual JoinState state() const noexcept = 0;
  // Gives them up if the driver has not begun with them. Returns whether it still works on them.
  virtual bool GiveUp() noexcept = 0;
  // Waits until the driver does not work on them any more.
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
  // Joins kernels of one workgroup size, those of earlier calls first. Does not wait. Null if this
  // device cannot run them as one; what only joining shows is told by their state.
  virtual std::unique_ptr<JoinedKernels> Join(std::span<const PipelineKey> kinds) = 0;
  // The commands may be submitted once the kernels are ready; that throws the error of kernels that
  // could not be joined.
  virtual JoinedCommands Record(const JoinedStep& step, BlockMemory& blocks) = 0;
  // The error of a step whose failed op is kStuckStep.
  [[nodiscard]] virtual sdk::Error StuckError() const = 0;
};

}  // namespace rullama::gpu
