// An opened device: its context, its one queue, memory and transfers.
//
// Thread safety: none; used under the host's lock on the device.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "backends/gpu/deferred_errors.h"
#include "backends/opencl/memory.h"

namespace rullama::opencl {

class Gpu {
 public:
  // `profile`: the queue notes when commands begin and end.
  Gpu(const Api& api, const PhysicalDevice& physical, const sdk::Host& host, bool profile);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  [[nodiscard]] const Api& api() const { return api_; }
  [[nodiscard]] cl_context context() const { return context_.get(); }
  [[nodiscard]] cl_device_id id() const { return physical_.id; }
  [[nodiscard]] const Capabilities& capabilities() const { return physical_.capabilities; }
  [[nodiscard]] const sdk::Host& host() const { return host_; }
  [[nodiscard]] Memory& memory() { return *memory_; }
  // From now on the queue notes when commands begin and end, as with `profile`. Waits for
  // everything.
  void RecordTimes();
  // Commands run in the order in which they are put here.
  [[nodiscard]] cl_command_queue queue() const { return queue_.get(); }

  // The result of a call on the queue. Errors: as Check; a lost device stays lost.
  void CheckQueue(cl_int result, const char* call);
  // Waits for everything. Errors: RL_DEVICE_LOST, and ever after; what plans have noted.
  void Wait();
  // Before memory goes away; what went wrong is logged.
  void WaitQuietly() noexcept;
  // Work whose failure is looked for by the next Wait.
  void Remember(gpu::Noted& work) { running_.Add(work); }
  // Waits for everything and drops the work, whatever it has noted.
  void Forget(const gpu::Noted& work) noexcept;

  // Device memory; contents are undefined. All of it is the host's through copies alone.
  Allocation NewMemory(uint64_t bytes, bool) { return memory_->Allocate(bytes); }
  // A kernel may touch no buffer that is not among its arguments.
  static constexpr bool kFollowsPointers = false;
  // Workgroups a dispatch may have. OpenCL names no limit but that of the number of work-items;
  // NVIDIA's devices have these.
  [[nodiscard]] static uint32_t MaxGroups(uint32_t axis) { return axis == 0 ? 0x7FFFFFFF : 65535; }

  // Copies after all that was queued; `data` is free on return. `offset` counts from the
  // allocation's start.
  void Write(const Allocation& to, uint64_t offset, std::span<const std::byte> data);
  // Done on return.
  void Read(const Allocation& from, uint64_t offset, std::span<std::byte> data);
  // Queued: `data` has to live until the next Wait.
  void ReadLater(const Allocation& from, uint64_t offset, std::span<std::byte> data);
  void FillZero(const Allocation& memory);

 private:
  [[nodiscard]] Owned<cl_command_queue> NewQueue(bool profile) const;

  const Api& api_;
  const PhysicalDevice physical_;
  sdk::Host host_;
  Owned<cl_context> context_;
  Owned<cl_command_queue> queue_;
  bool records_times_;
  std::unique_ptr<Memory> memory_;
  gpu::RunningWork running_;
  std::deque<std::vector<std::byte>> copies_;  // of small writes under way
  bool lost_ = false;
};

}  // namespace rullama::opencl
