#include "backends/cuda/driver.h"

#include <array>
#include <cstring>
#include <utility>

#include "backends/cuda/commands.h"
#include "backends/cuda/forms.h"
#include "backends/cuda/images.h"
#include "backends/gpu/kernel_source.h"

namespace rullama::cuda {
namespace {

// Copies up to this long are not waited for: what a step brings along, and what it gives.
constexpr size_t kStagedBytes = 65536;
constexpr size_t kStagingBytes = size_t{1} << 20;
// The staged copies begin at multiples of this.
constexpr size_t kStagingAlignment = 64;

CUstream NewStream(const Api& api, const Context& context) {
  const Context::Scope scope(context);
  CUstream stream = nullptr;
  Check(api, api.StreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  return stream;
}

}  // namespace

// ---- the context --------------------------------------------------------------------------------

Context::Context(const Api& api, CUdevice device) : api_(api), device_(device) {
  Check(api, api.DevicePrimaryCtxRetain(&handle_, device), "cuDevicePrimaryCtxRetain");
}

Context::~Context() { api_.DevicePrimaryCtxRelease(device_); }

Context::QuietScope::QuietScope(const Context& context) noexcept
    : api_(context.api_), result_(api_.CtxPushCurrent(context.handle_)) {}

Context::QuietScope::~QuietScope() {
  if (result_ != CUDA_SUCCESS) return;
  CUcontext popped = nullptr;
  api_.CtxPopCurrent(&popped);
}

Context::Scope::Scope(const Context& context) : scope_(context) {
  Check(context.api_, scope_.result(), "cuCtxPushCurrent");
}

// ---- the driver ---------------------------------------------------------------------------------

CudaDriver::CudaDriver(const Api& api, const PhysicalDevice& physical, const sdk::Host& host,
                       const DriverOptions& options)
    : Driver(host, TargetFor(physical.facts, options)),
      api_(api),
      physical_(physical),
      options_(options),
      context_(api, physical.id),
      stream_(Own(NewStream(api, context_), api.StreamDestroy)),
      staging_(std::make_unique<Staging>(*this)) {}

CudaDriver::~CudaDriver() {
  const Context::QuietScope scope(context_);
  if (!lost_) api_.StreamSynchronize(stream_.get());
}

void CudaDriver::CheckStream(CUresult result, const char* call) {
  try {
    Check(api_, result, call);
  } catch (const sdk::Error& error) {
    lost_ = lost_ || error.code() == RL_DEVICE_LOST;
    throw;
  }
}

void CudaDriver::CheckNotLost(const char* call) const {
  if (lost_) {
    throw sdk::Error(RL_DEVICE_LOST,
                     std::string(call) + ": the device is lost after an earlier failure");
  }
}

void CudaDriver::Synchronize() {
  const CUresult result = api_.StreamSynchronize(stream());
  if (result == CUDA_SUCCESS) return;
  lost_ = true;
  throw sdk::Error(RL_DEVICE_LOST, "cuStreamSynchronize: " + NameOf(api_, result), RL_NO_OP,
                   static_cast<int>(result));
}

void CudaDriver::Finish() {
  // Nothing lands after an error: the memory of the caller may be gone.
  const std::vector<Landing> landings = std::exchange(landings_, {});
  CheckNotLost("cuStreamSynchronize");
  const Context::Scope scope(context_);
  Synchronize();
  for (const Landing& landing : landings) {
    std::memcpy(landing.to.data(), landing.staged, landing.to.size());
  }
  staging_->FreeAll();
}

// ---- memory -------------------------------------------------------------------------------------

class CudaDriver::Block final : public gpu::MemoryBlock {
 public:
  Block(CudaDriver& driver, uint64_t bytes) : MemoryBlock(bytes), driver_(driver) {
    const Context::Scope scope(driver_.context_);
    CUdeviceptr memory = 0;
    Check(driver_.api_, driver_.api_.MemAlloc(&memory, bytes), "cuMemAlloc");
    address = memory;
  }
  ~Block() override {
    const Context::QuietScope scope(driver_.context_);
    driver_.api_.MemFree(address);
  }

 private:
  CudaDriver& driver_;
};

CudaDriver::Staging::Staging(CudaDriver& driver) : driver_(driver) {
  const Context::Scope scope(driver_.context_);
  void* memory = nullptr;
  Check(driver_.api_, driver_.api_.MemHostAlloc(&memory, kStagingBytes, 0), "cuMemHostAlloc");
  memory_ = static_cast<std::byte*>(memory);
}

CudaDriver::Staging::~Staging() {
  const Context::QuietScope scope(driver_.context_);
  driver_.api_.MemFreeHost(memory_);
}

std::byte* CudaDriver::Staging::Take(size_t bytes) {
  const size_t room = gpu::RoundUp(bytes, kStagingAlignment);
  if (bytes > kStagedBytes || room > kStagingBytes - used_) return nullptr;
  std::byte* taken = memory_ + used_;
  used_ += room;
  return taken;
}

gpu::MemoryFacts CudaDriver::Memory() const {
  const Context::Scope scope(context_);
  size_t free = 0, total = 0;
  if (api_.MemGetInfo(&free, &total) != CUDA_SUCCESS) free = 0;
  return {.total = facts().memory, .free = free, .max_allocation = facts().max_allocation};
}

std::unique_ptr<gpu::MemoryBlock> CudaDriver::NewBlock(uint64_t bytes,
                                                       gpu::Residence /*residence*/) {
  return std::make_unique<Block>(*this, bytes);
}

void CudaDriver::Write(const gpu::Allocation& to, uint64_t offset,
                       std::span<const std::byte> data) {
  if (data.empty()) return;
  CheckNotLost("cuMemcpyHtoDAsync");
  const Context::Scope scope(context_);
  std::byte* staged = staging_->Take(data.size());
  if (staged != nullptr) std::memcpy(staged, data.data(), data.size());
  CheckStream(api_.MemcpyHtoDAsync(to.address() + offset, staged == nullptr ? data.data() : staged,
                                   data.size(), stream()),
              "cuMemcpyHtoDAsync");
  // The caller may change the data as soon as this returns.
  if (staged == nullptr) Synchronize();
}

void CudaDriver::Read(const gpu::Allocation& from, uint64_t offset, std::span<std::byte> data) {
  ReadLater(from, offset, data);
  Wait();
}

void CudaDriver::ReadLater(const gpu::Allocation& from, uint64_t offset,
                           std::span<std::byte> data) {
  if (data.empty()) return;
  CheckNotLost("cuMemcpyDtoHAsync");
  const Context::Scope scope(context_);
  std::byte* staged = staging_->Take(data.size());
  CheckStream(api_.MemcpyDtoHAsync(staged == nullptr ? data.data() : staged,
                                   from.address() + offset, data.size(), stream()),
              "cuMemcpyDtoHAsync");
  if (staged != nullptr) landings_.push_back({staged, data});
}

void CudaDriver::FillZero(const gpu::Allocation& memory) {
  CheckNotLost("cuMemsetD32Async");
  const Context::Scope scope(context_);
  CheckStream(api_.MemsetD32Async(memory.address(), 0, memory.size() / sizeof(uint32_t), stream()),
              "cuMemsetD32Async");
}

// ---- kernels ------------------------------------------------------------------------------------

// The key without the constants that the code reads as words: they do not tell kernels apart.
gpu::PipelineKey CudaDriver::CompiledKey(const gpu::PipelineKey& key) const {
  gpu::PipelineKey compiled = key;
  const size_t form = FindForm(key);
  if (form == AllForms().size()) return compiled;
  for (const Constant& constant : AllForms()[form].chosen) {
    compiled.constants.at(constant.id) = constant.value;
  }
  return compiled;
}

std::unique_ptr<gpu::Kernel> CudaDriver::Compile(const gpu::PipelineKey& key) {
  const size_t form = FindForm(key);
  if (form == AllForms().size()) {
    throw sdk::Error(RL_INTERNAL, "the plugin has no code for the kernel '" + TextOf(key) +
                                      "'; if it was built for tests (RULLAMA_CUDA_FORMS), use a "
                                      "release build, else please report it");
  }
  const Context::Scope scope(context_);
  const std::string name(gpu::NameOf(key.shader));
  CUmodule handle = nullptr;
  Check(api_, api_.ModuleLoadData(&handle, ImageOf(form, facts().capability).data()),
        "cuModuleLoadData of " + name);
  Owned<CUmodule> module = Own(handle, api_.ModuleUnload);
  CUfunction function = nullptr;
  Check(api_, api_.ModuleGetFunction(&function, handle, name.c_str()),
        "cuModuleGetFunction of " + name);
  const uint32_t shared_bytes = AllForms()[form].shared_bytes;
  if (shared_bytes > 0) {
    Check(api_,
          api_.FuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                static_cast<int>(shared_bytes)),
          "cuFuncSetAttribute of " + name);
  }
  // A form that reads none of its constants has no place for them.
  CUdeviceptr place = 0;
  size_t bytes = 0;
  const CUresult found = api_.ModuleGetGlobal(&place, &bytes, handle, "constants");
  if (found == CUDA_ERROR_NOT_FOUND)
    return std::make_unique<CudaKernel>(std::move(module), function, shared_bytes);
  Check(api_, found, "cuModuleGetGlobal of " + name);
  std::array<uint32_t, kConstantWords> words{};
  if (bytes != sizeof(words)) {
    throw sdk::Error(RL_INTERNAL, "the kernel '" + name + "' has a place of " +
                                      std::to_string(bytes) + " bytes for constants, expected " +
                                      std::to_string(sizeof(words)) + "; please report it");
  }
  for (size_t i = 0; i < key.constants.size(); ++i) words.at(i) = key.constants[i];
  Check(api_, api_.MemcpyHtoD(place, words.data(), sizeof(words)), "cuMemcpyHtoD");
  // The copy of pageable memory may return before it has ended, and the stream of the kernels does
  // not wait for it.
  Check(api_, api_.StreamSynchronize(nullptr), "cuStreamSynchronize");
  return std::make_unique<CudaKernel>(std::move(module), function, shared_bytes);
}

// ---- work ---------------------------------------------------------------------------------------

std::unique_ptr<gpu::Commands> CudaDriver::Record(const gpu::Recording& recording) {
  return std::make_unique<CudaCommands>(recording);
}

void CudaDriver::Submit(gpu::Commands& commands, const gpu::Readback& readback) {
  CheckNotLost("cuLaunchKernelEx");
  {
    const Context::Scope scope(context_);
    static_cast<CudaCommands&>(commands).Enqueue(*this);
  }
  ReadLater(*readback.from, readback.offset, readback.to);
}

void CudaDriver::TimesOf(gpu::Commands& commands, std::vector<gpu::DispatchTime>& times) {
  const Context::Scope scope(context_);
  static_cast<CudaCommands&>(commands).ReadEvents(*this, times);
}

}  // namespace rullama::cuda
