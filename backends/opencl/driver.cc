#include "backends/opencl/driver.h"

#include <iterator>
#include <string>
#include <utility>

#include "backends/gpu/weights.h"
#include "backends/opencl/commands.h"
#include "backends/opencl/kept_signals.h"

namespace rullama::opencl {
namespace {

// Writes up to this long are copied and not waited for: what a step brings along.
constexpr size_t kCopiedBytes = 4096;
// Copies that may be under way.
constexpr size_t kMaxCopies = 256;
// Addresses of blocks are multiples of this, so that no pointer past the end of one block points
// into another.
constexpr gpu::DeviceAddress kFirstAddress = uint64_t{1} << 32;

// Check() of a call that allocates: there a device without resources is out of memory, not lost.
void CheckAllocation(cl_int result, const char* call) {
  if (result != CL_OUT_OF_RESOURCES) return Check(result, call);
  throw sdk::Error(RL_OUT_OF_MEMORY, std::string(call) + ": " + NameOf(result), RL_NO_OP, result);
}

}  // namespace

// One buffer of OpenCL's.
class OpenClDriver::Block final : public gpu::MemoryBlock {
 public:
  Block(OpenClDriver& driver, uint64_t bytes, Owned<cl_mem> handle)
      : MemoryBlock(bytes), driver_(driver), buffer_(std::move(handle)) {
    address = driver_.next_address_;
    driver_.next_address_ += gpu::RoundUp(bytes, kFirstAddress) + kFirstAddress;
    driver_.blocks_[address] = this;
  }
  ~Block() override { driver_.blocks_.erase(address); }
  [[nodiscard]] cl_mem buffer() const { return buffer_.get(); }
  static cl_mem BufferOf(const gpu::Allocation& memory) {
    return static_cast<const Block&>(memory.block()).buffer();
  }

 private:
  OpenClDriver& driver_;
  Owned<cl_mem> buffer_;
};

OpenClDriver::OpenClDriver(const Api& api, const PhysicalDevice& physical, const sdk::Host& host,
                           const DriverOptions& options)
    : Driver(host, TargetFor(physical.facts, options)),
      api_(api),
      physical_(physical),
      cache_(options.cache),
      next_address_(kFirstAddress) {
  const cl_context_properties properties[] = {
      CL_CONTEXT_PLATFORM, reinterpret_cast<cl_context_properties>(physical.platform), 0};
  cl_int result = CL_SUCCESS;
  const KeptSignals kept;
  context_ = Own(api_.CreateContext(properties, 1, &physical_.id, nullptr, nullptr, &result),
                 api_.ReleaseContext);
  Check(result, "clCreateContext");
  queue_ = NewQueue(false);
  programs_ = std::make_unique<Programs>(*this, options.form);
}

Owned<cl_command_queue> OpenClDriver::NewQueue(bool records_times) const {
  cl_int result = CL_SUCCESS;
  auto queue = Own(api_.CreateCommandQueue(context_.get(), physical_.id,
                                           records_times ? CL_QUEUE_PROFILING_ENABLE : 0, &result),
                   api_.ReleaseCommandQueue);
  Check(result, "clCreateCommandQueue");
  return queue;
}

OpenClDriver::~OpenClDriver() {
  if (!lost_) api_.Finish(queue_.get());
}

void OpenClDriver::CheckQueue(cl_int result, const char* call) {
  try {
    Check(result, call);
  } catch (const sdk::Error& error) {
    lost_ = lost_ || error.code() == RL_DEVICE_LOST;
    throw;
  }
}

void OpenClDriver::CheckNotLost(const char* call) const {
  if (lost_) Check(CL_DEVICE_NOT_AVAILABLE, std::string(call) + ", after an earlier failure");
}

void OpenClDriver::Finish() {
  CheckNotLost("clFinish");
  CheckQueue(api_.Finish(queue_.get()), "clFinish");
  copies_.clear();
}

// ---- memory -------------------------------------------------------------------------------------

std::unique_ptr<gpu::MemoryBlock> OpenClDriver::NewBlock(uint64_t bytes,
                                                         gpu::Residence /*residence*/) {
  cl_int result = CL_SUCCESS;
  Owned<cl_mem> buffer =
      Own(api_.CreateBuffer(context_.get(), CL_MEM_READ_WRITE, bytes, nullptr, &result),
          api_.ReleaseMemObject);
  CheckAllocation(result, "clCreateBuffer");
  // Drivers put off the work until a buffer is used, and then fail where nobody expects it.
  cl_mem handle = buffer.get();
  CheckAllocation(
      api_.EnqueueMigrateMemObjects(queue_.get(), 1, &handle,
                                    CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED, 0, nullptr, nullptr),
      "clEnqueueMigrateMemObjects");
  return std::make_unique<Block>(*this, bytes, std::move(buffer));
}

Place OpenClDriver::PlaceOf(gpu::DeviceAddress address) const {
  const auto after = blocks_.upper_bound(address);
  if (after == blocks_.begin()) throw sdk::Error(RL_INTERNAL, "an address of no block");
  const auto& [begin, block] = *std::prev(after);
  return {block->buffer(), address - begin};
}

void OpenClDriver::Write(const gpu::Allocation& to, uint64_t offset,
                         std::span<const std::byte> data) {
  if (data.empty()) return;
  CheckNotLost("clEnqueueWriteBuffer");
  const bool small = data.size() <= kCopiedBytes && copies_.size() < kMaxCopies;
  if (small) {
    copies_.emplace_back(data.begin(), data.end());
    data = copies_.back();
  }
  CheckQueue(
      api_.EnqueueWriteBuffer(queue_.get(), Block::BufferOf(to), small ? CL_FALSE : CL_TRUE,
                              to.offset() + offset, data.size(), data.data(), 0, nullptr, nullptr),
      "clEnqueueWriteBuffer");
}

void OpenClDriver::Read(const gpu::Allocation& from, uint64_t offset, std::span<std::byte> data) {
  ReadLater(from, offset, data);
  Wait();
}

void OpenClDriver::ReadLater(const gpu::Allocation& from, uint64_t offset,
                             std::span<std::byte> data) {
  if (data.empty()) return;
  CheckNotLost("clEnqueueReadBuffer");
  CheckQueue(
      api_.EnqueueReadBuffer(queue_.get(), Block::BufferOf(from), CL_FALSE, from.offset() + offset,
                             data.size(), data.data(), 0, nullptr, nullptr),
      "clEnqueueReadBuffer");
}

void OpenClDriver::FillZero(const gpu::Allocation& memory) {
  constexpr cl_uint kZero = 0;
  CheckQueue(api_.EnqueueFillBuffer(queue_.get(), Block::BufferOf(memory), &kZero, sizeof(kZero),
                                    memory.offset(), memory.size(), 0, nullptr, nullptr),
             "clEnqueueFillBuffer");
}

std::string OpenClDriver::CacheName() const {
  if (!cache_) return {};
  return std::string("opencl kernels ") + RULLAMA_VERSION + " " + facts().name + " " +
         facts().driver;
}

// ---- work ---------------------------------------------------------------------------------------

std::unique_ptr<gpu::Commands> OpenClDriver::Record(const gpu::Recording& recording) {
  if (recording.timed && !records_times_) {
    Wait();
    queue_ = NewQueue(true);
    records_times_ = true;
  }
  return std::make_unique<OpenClCommands>(*this, recording);
}

void OpenClDriver::Submit(gpu::Commands& commands, const gpu::Readback& readback) {
  static_cast<OpenClCommands&>(commands).Enqueue(*this);
  ReadLater(*readback.from, readback.offset, readback.to);
  CheckQueue(api_.Flush(queue_.get()), "clFlush");
}

void OpenClDriver::TimesOf(gpu::Commands& commands, std::vector<gpu::DispatchTime>& times) {
  static_cast<OpenClCommands&>(commands).ReadEvents(*this, times);
}

}  // namespace rullama::opencl
