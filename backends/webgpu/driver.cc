#include "backends/webgpu/driver.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "backends/gpu/weights.h"
#include "backends/webgpu/commands.h"

namespace rullama::webgpu {
namespace {

constexpr uint64_t kWordBytes = 4;
// Addresses of blocks are multiples of this, so that no pointer past the end of one block points
// into another.
constexpr gpu::DeviceAddress kFirstAddress = uint64_t{1} << 32;
// wgpu-native keeps a copy of what is written until work is submitted.
constexpr uint64_t kMaxWritten = uint64_t{64} << 20;
// Bytes that are read in one.
constexpr uint64_t kMaxRead = uint64_t{64} << 20;
constexpr WGPUBufferUsage kMemoryUsage =
    WGPUBufferUsage_Storage | WGPUBufferUsage_CopySrc | WGPUBufferUsage_CopyDst;

rl_code CodeOf(WGPUErrorType type) {
  return type == WGPUErrorType_OutOfMemory ? RL_OUT_OF_MEMORY : RL_INTERNAL;
}

uint64_t WordsBefore(uint64_t byte) { return byte / kWordBytes * kWordBytes; }

}  // namespace

void Reports::Note(rl_code code, std::string text) {
  const std::scoped_lock lock(mutex_);
  lost_ = lost_ || code == RL_DEVICE_LOST;
  if (code_ != RL_OK && code != RL_DEVICE_LOST) return;
  code_ = code;
  text_ = std::move(text);
}

void Reports::Check(const char* call) {
  const std::scoped_lock lock(mutex_);
  if (code_ == RL_OK) return;
  const sdk::Error error(code_, std::string(call) + ": " + text_);
  if (!lost_) code_ = RL_OK;
  throw error;
}

// One buffer of WebGPU's.
class WebGpuDriver::Block final : public gpu::MemoryBlock {
 public:
  Block(WebGpuDriver& driver, uint64_t bytes)
      : MemoryBlock(bytes),
        driver_(driver),
        buffer_(driver.NewBuffer(bytes, kMemoryUsage)),
        bytes_(bytes) {
    address = driver_.next_address_;
    driver_.next_address_ += gpu::RoundUp(bytes, kFirstAddress) + kFirstAddress;
    driver_.blocks_[address] = this;
  }
  ~Block() override { driver_.blocks_.erase(address); }
  [[nodiscard]] WGPUBuffer buffer() const { return buffer_.get(); }
  [[nodiscard]] uint64_t bytes() const { return bytes_; }
  static WGPUBuffer BufferOf(const gpu::Allocation& memory) {
    return static_cast<const Block&>(memory.block()).buffer();
  }

 private:
  WebGpuDriver& driver_;
  Owned<WGPUBuffer> buffer_;
  uint64_t bytes_;
};

WebGpuDriver::WebGpuDriver(const Api& api, const PhysicalDevice& physical, const sdk::Host& host)
    : Driver(host, TargetFor(physical.facts)),
      api_(api),
      physical_(physical),
      device_(NewDevice()),
      queue_(Own(api.DeviceGetQueue(device_.get()), api.QueueRelease)),
      next_address_(kFirstAddress) {}

WebGpuDriver::~WebGpuDriver() { api_.DevicePoll(device(), 1, nullptr); }

Owned<WGPUDevice> WebGpuDriver::NewDevice() const {
  WGPUDeviceDescriptor descriptor{};
  descriptor.requiredLimits = &physical_.limits;
  descriptor.deviceLostCallbackInfo = {nullptr, WGPUCallbackMode_AllowSpontaneous,
                                       [](WGPUDevice const*, WGPUDeviceLostReason reason,
                                          WGPUStringView message, void* reports, void*) {
                                         if (reason == WGPUDeviceLostReason_Destroyed) return;
                                         static_cast<Reports*>(reports)->Note(
                                             RL_DEVICE_LOST,
                                             "the device is lost: " + TextOf(message));
                                       },
                                       reports_.get(), nullptr};
  descriptor.uncapturedErrorCallbackInfo = {
      nullptr,
      [](WGPUDevice const*, WGPUErrorType type, WGPUStringView message, void* reports, void*) {
        static_cast<Reports*>(reports)->Note(CodeOf(type), TextOf(message));
      },
      reports_.get(), nullptr};
  struct Answer {
    WGPUDevice device = nullptr;
    std::string why;
  } answer;
  const WGPURequestDeviceCallbackInfo request{
      nullptr, WGPUCallbackMode_AllowSpontaneous,
      [](WGPURequestDeviceStatus, WGPUDevice device, WGPUStringView message, void* to, void*) {
        static_cast<Answer*>(to)->device = device;
        static_cast<Answer*>(to)->why = TextOf(message);
      },
      &answer, nullptr};
  api_.AdapterRequestDevice(physical_.adapter, &descriptor, request);
  if (answer.device == nullptr) {
    throw sdk::Error(RL_UNAVAILABLE, "wgpuAdapterRequestDevice: " + answer.why);
  }
  return Own(answer.device, api_.DeviceRelease);
}

// ---- memory -------------------------------------------------------------------------------------

Owned<WGPUBuffer> WebGpuDriver::NewBuffer(uint64_t bytes, WGPUBufferUsage usage) {
  WGPUBufferDescriptor descriptor{};
  descriptor.size = bytes;
  descriptor.usage = usage;
  Owned<WGPUBuffer> buffer =
      Own(api_.DeviceCreateBuffer(device(), &descriptor), api_.BufferRelease);
  Check("wgpuDeviceCreateBuffer");
  return buffer;
}

std::unique_ptr<gpu::MemoryBlock> WebGpuDriver::NewBlock(uint64_t bytes,
                                                         gpu::Residence /*residence*/) {
  return std::make_unique<Block>(*this, bytes);
}

Place WebGpuDriver::PlaceOf(gpu::DeviceAddress address) const {
  const auto after = blocks_.upper_bound(address);
  if (after == blocks_.begin()) throw sdk::Error(RL_INTERNAL, "an address of no block");
  const auto& [begin, block] = *std::prev(after);
  return {block->buffer(), block->bytes(), address - begin};
}

// WebGPU writes whole words: those at the ends keep their other bytes.
void WebGpuDriver::Write(const gpu::Allocation& to, uint64_t offset,
                         std::span<const std::byte> data) {
  if (data.empty()) return;
  const uint64_t begin = to.offset() + offset, end = begin + data.size();
  const uint64_t first = WordsBefore(begin), last = gpu::RoundUp(end, kWordBytes);
  std::vector<std::byte> words;
  if (first != begin || last != end) {
    words.resize(last - first);
    const std::span<std::byte> ends(words);
    Read(to, first - to.offset(), ends.first(kWordBytes));
    Read(to, last - kWordBytes - to.offset(), ends.last(kWordBytes));
    std::ranges::copy(data, words.begin() + static_cast<ptrdiff_t>(begin - first));
    data = words;
  }
  api_.QueueWriteBuffer(queue(), Block::BufferOf(to), first, data.data(), data.size());
  Check("wgpuQueueWriteBuffer");
  written_ += data.size();
  if (written_ < kMaxWritten) return;
  api_.QueueSubmit(queue(), 0, nullptr);
  written_ = 0;
  Finish();
}

void WebGpuDriver::Read(const gpu::Allocation& from, uint64_t offset, std::span<std::byte> data) {
  std::shared_ptr<Staging> staging;
  while (!data.empty()) {
    const std::span<std::byte> part = data.first(std::min<uint64_t>(data.size(), kMaxRead));
    const Owned<WGPUCommandEncoder> encoder = NewEncoder();
    Landing landing = CopyOut(encoder.get(), {&from, offset, part}, staging);
    Submit(encoder.get());
    landings_.push_back(std::move(landing));
    Wait();
    data = data.subspan(part.size());
    offset += part.size();
  }
}

void WebGpuDriver::FillZero(const gpu::Allocation& memory) {
  const Owned<WGPUCommandEncoder> encoder = NewEncoder();
  api_.CommandEncoderClearBuffer(encoder.get(), Block::BufferOf(memory), memory.offset(),
                                 memory.size());
  Submit(encoder.get());
}

// ---- kernels ------------------------------------------------------------------------------------

const Layout& WebGpuDriver::LayoutFor(uint32_t buffers) {
  const auto found = layouts_.find(buffers);
  if (found != layouts_.end()) return found->second;
  if (buffers + 1 > facts().max_buffers) {
    throw sdk::Error(RL_UNSUPPORTED, "a kernel needs " + std::to_string(buffers + 1) +
                                         " buffers, and the device gives kernels " +
                                         std::to_string(facts().max_buffers));
  }
  Layout layout = MakeLayout(api_, device(), buffers);
  Check("wgpuDeviceCreatePipelineLayout");
  return layouts_.emplace(buffers, std::move(layout)).first->second;
}

// ---- work ---------------------------------------------------------------------------------------

Owned<WGPUCommandEncoder> WebGpuDriver::NewEncoder() {
  Check("wgpuDeviceCreateCommandEncoder");
  return Own(api_.DeviceCreateCommandEncoder(device(), nullptr), api_.CommandEncoderRelease);
}

WebGpuDriver::Landing WebGpuDriver::CopyOut(WGPUCommandEncoder encoder,
                                            const gpu::Readback& readback,
                                            std::shared_ptr<Staging>& kept) {
  const uint64_t begin = readback.from->offset() + readback.offset;
  const uint64_t first = WordsBefore(begin);
  const uint64_t bytes = gpu::RoundUp(begin + readback.to.size(), kWordBytes) - first;
  // A landing that is not done yet has a share of its own.
  if (kept == nullptr || kept.use_count() > 1 || kept->mapped || kept->bytes != bytes) {
    kept = std::make_shared<Staging>(
        NewBuffer(bytes, WGPUBufferUsage_MapRead | WGPUBufferUsage_CopyDst), bytes);
  }
  api_.CommandEncoderCopyBufferToBuffer(encoder, Block::BufferOf(*readback.from), first,
                                        kept->buffer.get(), 0, bytes);
  return {kept, begin - first, readback.to};
}

void WebGpuDriver::Submit(WGPUCommandEncoder encoder) {
  const Owned<WGPUCommandBuffer> commands =
      Own(api_.CommandEncoderFinish(encoder, nullptr), api_.CommandBufferRelease);
  Check("wgpuCommandEncoderFinish");
  WGPUCommandBuffer handle = commands.get();
  api_.QueueSubmit(queue(), 1, &handle);
  written_ = 0;
  Check("wgpuQueueSubmit");
}

std::unique_ptr<gpu::Commands> WebGpuDriver::Record(const gpu::Recording& recording) {
  return std::make_unique<WebGpuCommands>(*this, recording);
}

void WebGpuDriver::Submit(gpu::Commands& commands, const gpu::Readback& readback) {
  const Owned<WGPUCommandEncoder> encoder = NewEncoder();
  auto& recorded = static_cast<WebGpuCommands&>(commands);
  recorded.Encode(api_, encoder.get());
  Landing landing = CopyOut(encoder.get(), readback, recorded.staging());
  Submit(encoder.get());
  landings_.push_back(std::move(landing));
}

void WebGpuDriver::Finish() {
  // Nothing lands after an error: the memory of the caller may be gone.
  std::vector<Landing> landings = std::exchange(landings_, {});
  Check("wgpuDevicePoll");
  Land(std::move(landings));
  api_.DevicePoll(device(), 1, nullptr);
  Check("wgpuDevicePoll");
}

void WebGpuDriver::Land(std::vector<Landing> landings) {
  if (landings.empty()) return;
  const WGPUBufferMapCallbackInfo info{
      nullptr, WGPUCallbackMode_AllowSpontaneous,
      [](WGPUMapAsyncStatus status, WGPUStringView message, void* reports, void*) {
        if (status == WGPUMapAsyncStatus_Success) return;
        static_cast<Reports*>(reports)->Note(RL_DEVICE_LOST, TextOf(message));
      },
      reports_.get(), nullptr};
  for (const Landing& landing : landings) {
    landing.staging->mapped = true;
    api_.BufferMapAsync(landing.staging->buffer.get(), WGPUMapMode_Read, 0, landing.staging->bytes,
                        info);
  }
  api_.DevicePoll(device(), 1, nullptr);
  Check("wgpuBufferMapAsync");
  for (const Landing& landing : landings) {
    Staging& staging = *landing.staging;
    const auto* bytes = static_cast<const std::byte*>(
        api_.BufferGetConstMappedRange(staging.buffer.get(), 0, staging.bytes));
    std::memcpy(landing.to.data(), bytes + landing.skipped, landing.to.size());
    api_.BufferUnmap(staging.buffer.get());
    staging.mapped = false;
  }
}

}  // namespace rullama::webgpu
