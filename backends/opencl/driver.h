// An opened OpenCL device: its context, its one queue, memory and transfers. Kernels get an address
// as a buffer and an offset in it; on the host each buffer has addresses of its own (gpu/memory.h),
// which nothing but this class can turn into those.
//
// Thread safety: none; used under the host's lock on the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backends/gpu/driver.h"
#include "backends/opencl/instance.h"
#include "backends/opencl/programs.h"
#include "backends/opencl/target.h"

namespace rullama::opencl {

// A kernel receives an address as a buffer and an offset in it.
struct Place {
  cl_mem buffer = nullptr;
  uint64_t offset = 0;
};

class OpenClDriver final : public gpu::Driver {
 public:
  OpenClDriver(const Api& api, const PhysicalDevice& physical, const sdk::Host& host,
               const DriverOptions& options);
  ~OpenClDriver() override;

  [[nodiscard]] const Api& api() const { return api_; }
  [[nodiscard]] cl_context context() const { return context_.get(); }
  [[nodiscard]] cl_device_id id() const { return physical_.id; }
  [[nodiscard]] const Facts& facts() const { return physical_.facts; }
  [[nodiscard]] const Programs& programs() const { return *programs_; }
  // Commands run in the order in which they are put here.
  [[nodiscard]] cl_command_queue queue() const { return queue_.get(); }
  // The result of a call on the queue. Errors: as Check; a lost device stays lost.
  void CheckQueue(cl_int result, const char* call);
  // The place of an address inside an allocation that lives.
  [[nodiscard]] Place PlaceOf(gpu::DeviceAddress address) const;

  [[nodiscard]] gpu::MemoryFacts Memory() const override {
    return {.total = facts().memory, .max_allocation = facts().max_allocation};
  }
  std::unique_ptr<gpu::MemoryBlock> NewBlock(uint64_t bytes, gpu::Residence residence) override;
  void Write(const gpu::Allocation& to, uint64_t offset, std::span<const std::byte> data) override;
  void Read(const gpu::Allocation& from, uint64_t offset, std::span<std::byte> data) override;
  void FillZero(const gpu::Allocation& memory) override;
  std::unique_ptr<gpu::Kernel> Compile(const gpu::PipelineKey& key) override {
    return programs_->Make(key);
  }
  [[nodiscard]] gpu::PipelineKey CompiledKey(const gpu::PipelineKey& key) const override {
    return programs_->ProgramOf(key);
  }
  [[nodiscard]] std::string CacheName() const override;
  void LoadCache(std::span<const std::byte> saved) override { programs_->Load(saved); }
  [[nodiscard]] std::vector<std::byte> CacheData(const gpu::Kernels& kernels) override {
    return programs_->BinariesOf(kernels);
  }
  std::unique_ptr<gpu::Commands> Record(const gpu::Recording& recording) override;
  void Submit(gpu::Commands& commands, const gpu::Readback& readback) override;
  void TimesOf(gpu::Commands& commands, std::vector<gpu::DispatchTime>& times) override;

 private:
  class Block;

  void Finish() override;
  void CheckNotLost(const char* call) const;
  // Queued: `data` has to live until the next Wait.
  void ReadLater(const gpu::Allocation& from, uint64_t offset, std::span<std::byte> data);
  [[nodiscard]] Owned<cl_command_queue> NewQueue(bool records_times) const;

  const Api& api_;
  const PhysicalDevice physical_;
  Owned<cl_context> context_;
  Owned<cl_command_queue> queue_;
  const bool cache_;
  bool records_times_ = false;  // the queue notes when commands begin and end
  std::map<gpu::DeviceAddress, const Block*> blocks_;  // by first address
  gpu::DeviceAddress next_address_;
  std::deque<std::vector<std::byte>> copies_;  // of small writes under way
  bool lost_ = false;
  std::unique_ptr<Programs> programs_;
};

}  // namespace rullama::opencl
