// An opened CUDA device: its primary context, its one stream, memory and transfers.
//
// Thread safety: none but for Compile(); used under the host's lock on the device, from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "backends/cuda/instance.h"
#include "backends/cuda/target.h"
#include "backends/gpu/driver.h"

namespace rullama::cuda {

// The primary context of a device, retained.
class Context {
 public:
  Context(const Api& api, CUdevice device);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // Makes it the context of the thread's calls, if it can: for destructors, which may not throw.
  class QuietScope {
   public:
    explicit QuietScope(const Context& context) noexcept;
    ~QuietScope();
    QuietScope(const QuietScope&) = delete;
    QuietScope& operator=(const QuietScope&) = delete;
    [[nodiscard]] CUresult result() const { return result_; }

   private:
    const Api& api_;
    const CUresult result_;
  };
  // Likewise. Errors: as Check.
  class Scope {
   public:
    explicit Scope(const Context& context);

   private:
    const QuietScope scope_;
  };

 private:
  const Api& api_;
  CUdevice device_;
  CUcontext handle_ = nullptr;
};

// An object of CUDA's, destroyed when its owner goes.
template <typename Handle>
struct Destroy {
  CUresult(CUDAAPI* destroy)(Handle) = nullptr;
  const Context* context = nullptr;
  void operator()(Handle handle) const {
    const Context::QuietScope scope(*context);
    destroy(handle);
  }
};
template <typename Handle>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Destroy<Handle>>;

// A kernel with its constants in place.
class CudaKernel final : public gpu::Kernel {
 public:
  CudaKernel(Owned<CUmodule> module, CUfunction function, uint32_t shared_bytes)
      : module_(std::move(module)), function_(function), shared_bytes_(shared_bytes) {}
  [[nodiscard]] CUfunction function() const { return function_; }
  // Bytes of shared memory that a launch gives.
  [[nodiscard]] uint32_t shared_bytes() const { return shared_bytes_; }

 private:
  Owned<CUmodule> module_;
  CUfunction function_;
  uint32_t shared_bytes_;
};

class CudaDriver final : public gpu::Driver {
 public:
  CudaDriver(const Api& api, const PhysicalDevice& physical, const sdk::Host& host,
             const DriverOptions& options);
  ~CudaDriver() override;

  [[nodiscard]] const Api& api() const { return api_; }
  [[nodiscard]] const Context& context() const { return context_; }
  [[nodiscard]] const Facts& facts() const { return physical_.facts; }
  [[nodiscard]] const DriverOptions& options() const { return options_; }
  // Work runs in the order in which it is put here.
  [[nodiscard]] CUstream stream() const { return stream_.get(); }
  // The result of a call on the stream. Errors: as Check; a lost device stays lost.
  void CheckStream(CUresult result, const char* call);
  template <typename Handle>
  [[nodiscard]] Owned<Handle> Own(Handle handle, CUresult(CUDAAPI* destroy)(Handle)) const {
    return Owned<Handle>(handle, Destroy<Handle>{destroy, &context_});
  }

  [[nodiscard]] gpu::MemoryFacts Memory() const override;
  std::unique_ptr<gpu::MemoryBlock> NewBlock(uint64_t bytes, gpu::Residence residence) override;
  void Write(const gpu::Allocation& to, uint64_t offset, std::span<const std::byte> data) override;
  void Read(const gpu::Allocation& from, uint64_t offset, std::span<std::byte> data) override;
  void FillZero(const gpu::Allocation& memory) override;
  std::unique_ptr<gpu::Kernel> Compile(const gpu::PipelineKey& key) override;
  [[nodiscard]] gpu::PipelineKey CompiledKey(const gpu::PipelineKey& key) const override;
  // Kernels are compiled ahead: there is nothing to keep.
  [[nodiscard]] std::string CacheName() const override { return {}; }
  void LoadCache(std::span<const std::byte> /*saved*/) override {}
  [[nodiscard]] std::vector<std::byte> CacheData(const gpu::Kernels& /*kernels*/) override {
    return {};
  }
  std::unique_ptr<gpu::Commands> Record(const gpu::Recording& recording) override;
  void Submit(gpu::Commands& commands, const gpu::Readback& readback) override;
  void TimesOf(gpu::Commands& commands, std::vector<gpu::DispatchTime>& times) override;

 private:
  class Block;

  // Memory of the host that copies may use while the host does something else. It is handed out
  // from its beginning, and all of it is free after Finish().
  class Staging {
   public:
    explicit Staging(CudaDriver& driver);
    ~Staging();
    Staging(const Staging&) = delete;
    Staging& operator=(const Staging&) = delete;
    // Null if there is no room.
    std::byte* Take(size_t bytes);
    void FreeAll() { used_ = 0; }

   private:
    CudaDriver& driver_;
    std::byte* memory_ = nullptr;
    size_t used_ = 0;
  };
  // Bytes on their way to `to`, by way of `staged`.
  struct Landing {
    const std::byte* staged;
    std::span<std::byte> to;
  };

  void Finish() override;
  // Waits for the stream. After any error it is unknown what ran: the device is lost.
  void Synchronize();
  void CheckNotLost(const char* call) const;
  // Queued: `data` has to live until the next Wait.
  void ReadLater(const gpu::Allocation& from, uint64_t offset, std::span<std::byte> data);

  const Api& api_;
  const PhysicalDevice physical_;
  const DriverOptions options_;
  Context context_;
  Owned<CUstream> stream_;
  std::unique_ptr<Staging> staging_;
  std::vector<Landing> landings_;
  bool lost_ = false;
};

}  // namespace rullama::cuda
