#include "backends/opencl/gpu.h"

#include <algorithm>
#include <utility>

#include "backends/opencl/kept_signals.h"

namespace rullama::opencl {
namespace {

// Writes up to this long are copied and not waited for: what a step brings along.
constexpr size_t kCopiedBytes = 4096;
// Copies that may be under way.
constexpr size_t kMaxCopies = 256;

}  // namespace

Gpu::Gpu(const Api& api, const PhysicalDevice& physical, const sdk::Host& host, bool profile)
    : api_(api), physical_(physical), host_(host), records_times_(profile) {
  const cl_context_properties properties[] = {
      CL_CONTEXT_PLATFORM, reinterpret_cast<cl_context_properties>(physical.platform), 0};
  cl_int result = CL_SUCCESS;
  const KeptSignals kept;
  context_ = Own(api_.CreateContext(properties, 1, &physical_.id, nullptr, nullptr, &result),
                 api_.ReleaseContext);
  Check(result, "clCreateContext");
  queue_ = NewQueue(profile);
  memory_ = std::make_unique<Memory>(api_, capabilities(), context_.get(), queue_.get());
}

Owned<cl_command_queue> Gpu::NewQueue(bool profile) const {
  cl_int result = CL_SUCCESS;
  auto queue = Own(api_.CreateCommandQueue(context_.get(), physical_.id,
                                           profile ? CL_QUEUE_PROFILING_ENABLE : 0, &result),
                   api_.ReleaseCommandQueue);
  Check(result, "clCreateCommandQueue");
  return queue;
}

void Gpu::RecordTimes() {
  if (records_times_) return;
  Wait();
  queue_ = NewQueue(true);
  memory_->set_queue(queue_.get());
  records_times_ = true;
}

Gpu::~Gpu() {
  if (!lost_) api_.Finish(queue_.get());
}

void Gpu::CheckQueue(cl_int result, const char* call) {
  try {
    Check(result, call);
  } catch (const sdk::Error& error) {
    lost_ = lost_ || error.code() == RL_DEVICE_LOST;
    throw;
  }
}

void Gpu::Wait() {
  if (lost_) Check(CL_DEVICE_NOT_AVAILABLE, "clFinish, after an earlier failure");
  CheckQueue(api_.Finish(queue_.get()), "clFinish");
  copies_.clear();
  running_.Check();
}

void Gpu::WaitQuietly() noexcept {
  try {
    Wait();
  } catch (const sdk::Error& error) {
    // A destructor cannot throw; a lost device says so again at the next call.
    host_.Log(RL_LOG_WARNING, error.what());
  }
}

void Gpu::Forget(const gpu::Noted& work) noexcept {
  running_.Drop(work);
  WaitQuietly();
}

void Gpu::Write(const Allocation& to, uint64_t offset, std::span<const std::byte> data) {
  if (data.empty()) return;
  if (lost_) Check(CL_DEVICE_NOT_AVAILABLE, "clEnqueueWriteBuffer, after an earlier failure");
  const bool small = data.size() <= kCopiedBytes && copies_.size() < kMaxCopies;
  if (small) {
    copies_.emplace_back(data.begin(), data.end());
    data = copies_.back();
  }
  CheckQueue(
      api_.EnqueueWriteBuffer(queue_.get(), to.buffer(), small ? CL_FALSE : CL_TRUE,
                              to.offset() + offset, data.size(), data.data(), 0, nullptr, nullptr),
      "clEnqueueWriteBuffer");
}

void Gpu::Read(const Allocation& from, uint64_t offset, std::span<std::byte> data) {
  ReadLater(from, offset, data);
  Wait();
}

void Gpu::ReadLater(const Allocation& from, uint64_t offset, std::span<std::byte> data) {
  if (data.empty()) return;
  if (lost_) Check(CL_DEVICE_NOT_AVAILABLE, "clEnqueueReadBuffer, after an earlier failure");
  CheckQueue(api_.EnqueueReadBuffer(queue_.get(), from.buffer(), CL_FALSE, from.offset() + offset,
                                    data.size(), data.data(), 0, nullptr, nullptr),
             "clEnqueueReadBuffer");
}

void Gpu::FillZero(const Allocation& memory) {
  constexpr cl_uint kZero = 0;
  CheckQueue(api_.EnqueueFillBuffer(queue_.get(), memory.buffer(), &kZero, sizeof(kZero),
                                    memory.offset(), memory.size(), 0, nullptr, nullptr),
             "clEnqueueFillBuffer");
}

}  // namespace rullama::opencl
