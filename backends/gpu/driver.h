// The interface of a GPU API: memory, transfers and work of one opened device. The device
// that the host sees (device.h) is written once over it.
//
// Thread safety: none but for Compile() and Keep(); used under the host's lock on the device.
#pragma once

#include <rullama/sdk/backend.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "backends/gpu/asking_host.h"
#include "backends/gpu/block_memory.h"
#include "backends/gpu/deferred_errors.h"
#include "backends/gpu/dispatch.h"
#include "backends/gpu/step_joiner.h"
#include "backends/gpu/target.h"

namespace rullama::gpu {

// The memory of a device, in bytes.
struct MemoryFacts {
  uint64_t total = 0;           // 0: the device does not say
  uint64_t free = 0;            // now; 0: the device does not say
  uint64_t max_allocation = 0;  // that the driver makes
  // Whether Residence::kShared is another kind of memory than kDevice.
  bool has_shared = false;
};

// A compiled kernel. The subclass of each driver holds it.
class Kernel {
 public:
  virtual ~Kernel() = default;
};
using Kernels = std::map<PipelineKey, std::unique_ptr<Kernel>>;

class KernelCache;

// Dispatches to record, in this order.
struct Recording {
  std::span<const Dispatch> dispatches = {};
  // The level of each dispatch (schedule.h), ascending. Empty unless
  // Capabilities::overlaps_dispatches.
  std::span<const uint32_t> levels = {};
  const KernelCache& kernels;  // has those of the dispatches, and outlives the commands
  bool timed = false;          // TimesOf() will be asked: no two dispatches overlap
  bool few_rows = false;       // of a step, so that all dispatches together take milliseconds
};

// Recorded dispatches. The subclass of each driver holds what it replays.
class Commands {
 public:
  virtual ~Commands() = default;
};

// Bytes that the host looks at after the next Wait(). `to` has to live until then.
struct Readback {
  const Allocation* from = nullptr;
  uint64_t offset = 0;
  std::span<std::byte> to = {};
};

// When a dispatch ran, in nanoseconds of the device's clock.
struct DispatchTime {
  uint64_t begin = 0, end = 0;
};

class Driver {
 public:
  // `target`: what graphs are lowered for, less what GpuDevice adds: the sizes of pieces of weights
  // and the options that all backends have.
  Driver(const sdk::Host& host, const Target& target)
      : host_(host), asking_(host), target_(target) {}
  virtual ~Driver() = default;
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  [[nodiscard]] const sdk::Host& host() const { return host_; }
  [[nodiscard]] const Target& target() const { return target_; }
  // For calls that may take long; Wait() has a scope of its own.
  [[nodiscard]] AskingHost& asking() { return asking_; }

  // ---- memory. `offset` counts from the start of the allocation.
  [[nodiscard]] virtual MemoryFacts Memory() const = 0;
  // Allocates memory, whose contents are undefined and which must not outlive the driver. Errors:
  // RL_OUT_OF_MEMORY with the driver's message.
  virtual std::unique_ptr<MemoryBlock> NewBlock(uint64_t bytes, Residence residence) = 0;
  // Copies after everything before; the caller may reuse `data` on return. Errors: RL_DEVICE_LOST,
  // from then on always.
  virtual void Write(const Allocation& to, uint64_t offset, std::span<const std::byte> data) = 0;
  // Copies after everything before; done on return. Errors: as Wait().
  virtual void Read(const Allocation& from, uint64_t offset, std::span<std::byte> data) = 0;
  virtual void FillZero(const Allocation& memory) = 0;

  // ---- kernels
  // Errors: those of the driver's compiler, with its log. Several threads call it at a time.
  virtual std::unique_ptr<Kernel> Compile(const PipelineKey& key) = 0;
  // Optional: the key without constants that a kernel gets as arguments instead.
  [[nodiscard]] virtual PipelineKey CompiledKey(const PipelineKey& key) const { return key; }
  // The name under which the host keeps what the driver has compiled: of this version, device and
  // driver. Empty: it keeps nothing.
  [[nodiscard]] virtual std::string CacheName() const = 0;
  // Takes what CacheData() gave another time, or nothing. Damaged data costs a slow start only.
  virtual void LoadCache(std::span<const std::byte> saved) = 0;
  // The bytes that the host is to keep. Empty: none.
  [[nodiscard]] virtual std::vector<std::byte> CacheData(const Kernels& kernels) = 0;

  // Hands the host what `collect` gives, unless that is empty: several threads do so, and what is
  // collected later is kept later. Whether nothing is left to keep. Errors: those of `collect`.
  template <typename Collect>
  bool Keep(const Collect& collect) const {
    const std::string name = CacheName();
    if (name.empty()) return true;
    const std::scoped_lock lock(keeping_);
    const std::vector<std::byte> data = collect();
    return data.empty() || host_.BlobPut(name, data);
  }

  // ---- work
  // Records what Submit() replays any number of times. Kernels read all that changes from memory.
  virtual std::unique_ptr<Commands> Record(const Recording& recording) = 0;
  // Starts commands after everything before; the bytes of `readback` are read after them. Does not
  // wait. Errors: RL_DEVICE_LOST, from then on always.
  virtual void Submit(Commands& commands, const Readback& readback) = 0;
  // Appends when each dispatch of timed commands ran, in their order: of every execution since the
  // last call, or of the last one alone. The device is idle.
  virtual void TimesOf(Commands& commands, std::vector<DispatchTime>& times) = 0;
  // Optional: makes steps of one row one dispatch. Null: the driver cannot.
  virtual StepJoiner* joiner() { return nullptr; }

  // ---- waiting
  // Waits for everything. Errors: RL_DEVICE_LOST, from then on always; errors that work has noted.
  void Wait() {
    {
      const AskingHost::Scope asking(asking_);
      Finish();
    }
    running_.Check();
  }
  // Wait() for destructors, which cannot throw: logs errors. A lost device says so again at the
  // next call.
  void WaitQuietly() noexcept {
    try {
      Wait();
    } catch (const std::exception& error) {
      host_.Log(RL_LOG_WARNING, error.what());
    }
  }
  // Work that was submitted, whose failure is looked for by the next Wait().
  void Remember(Noted& work) { running_.Add(work); }
  // Waits for everything and drops the work, whatever it has noted.
  void Forget(const Noted& work) noexcept {
    running_.Drop(work);
    WaitQuietly();
  }
  // Optional: throws any other error of the backend; called when the host has waited.
  virtual void CheckMore() const {}

 protected:
  // Waits for everything. Errors: RL_DEVICE_LOST, from then on always.
  virtual void Finish() = 0;

 private:
  sdk::Host host_;
  AskingHost asking_;
  Target target_;
  RunningWork running_;
  mutable std::mutex keeping_;
};

}  // namespace rullama::gpu
