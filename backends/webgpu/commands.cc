#include "backends/webgpu/commands.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "backends/gpu/kernel_cache.h"
#include "backends/gpu/weights.h"
#include "backends/webgpu/driver.h"
#include "backends/webgpu/wgsl.h"

namespace rullama::webgpu {
namespace {

// An address as kernels see it.
struct Address {
  uint32_t offset, binding;
};

// The arguments as kernels read them: records, which a dispatch has in place of their address, come
// after it. Returns where the address at `at` has gone.
uint32_t Moved(const gpu::Dispatch& dispatch, uint32_t at) {
  const bool after = dispatch.records_offset > 0 && at >= dispatch.records_offset;
  return after ? at + static_cast<uint32_t>(sizeof(Address)) : at;
}

void CopyArguments(const gpu::Dispatch& dispatch, std::span<std::byte> to) {
  const uint32_t head = dispatch.records_offset > 0 ? dispatch.records_offset : dispatch.push_bytes;
  std::memcpy(to.data(), dispatch.push.data(), head);
  std::memcpy(to.data() + Moved(dispatch, head), dispatch.push.data() + head,
              dispatch.push_bytes - head);
}

}  // namespace

WebGpuCommands::WebGpuCommands(WebGpuDriver& driver, const gpu::Recording& recording)
    : stride_(static_cast<uint32_t>(gpu::RoundUp(kArgumentBytes, driver.facts().alignment))) {
  std::vector<std::byte> arguments(size_t{stride_} *
                                   std::max<size_t>(1, recording.dispatches.size()));
  arguments_ =
      driver.NewBuffer(arguments.size(), WGPUBufferUsage_Storage | WGPUBufferUsage_CopyDst);
  const std::span<std::byte> all(arguments);
  for (const gpu::Dispatch& dispatch : recording.dispatches) {
    Add(driver, recording.kernels, dispatch, all.subspan(stride_ * launches_.size(), stride_));
  }
  driver.api().QueueWriteBuffer(driver.queue(), arguments_.get(), 0, arguments.data(),
                                arguments.size());
  driver.Check("wgpuQueueWriteBuffer");
}

void WebGpuCommands::Add(WebGpuDriver& driver, const gpu::KernelCache& kernels,
                         const gpu::Dispatch& dispatch, std::span<std::byte> arguments) {
  CopyArguments(dispatch, arguments);
  std::vector<WGPUBuffer> buffers;
  std::map<uint32_t, uint32_t> bindings;
  const auto set = [&](uint32_t at, const Address& address) {
    std::memcpy(arguments.data() + at, &address, sizeof(address));
    bindings[at] = address.binding;
  };
  for (const uint32_t at : dispatch.pointers) {
    gpu::DeviceAddress address = 0;
    std::memcpy(&address, dispatch.push.data() + at, sizeof(address));
    if (address == 0) {
      set(Moved(dispatch, at), {0, kNullAddress});
      continue;
    }
    const Place place = driver.PlaceOf(address);
    auto found = std::ranges::find(buffers, place.buffer);
    if (found == buffers.end()) found = buffers.insert(found, place.buffer);
    const auto binding = static_cast<uint32_t>(found - buffers.begin()) + 1;
    set(Moved(dispatch, at), {static_cast<uint32_t>(place.offset), binding});
  }
  if (dispatch.records_offset > 0) {
    const bool any = dispatch.push_bytes > dispatch.records_offset;
    const auto after = dispatch.records_offset + static_cast<uint32_t>(sizeof(Address));
    set(dispatch.records_offset,
        any ? Address{after, kArgumentsAddress} : Address{0, kNullAddress});
  }
  const auto& kernel = static_cast<const WebGpuKernel&>(kernels.Get(dispatch.pipeline));
  const auto count = static_cast<uint32_t>(buffers.size());
  launches_.push_back({kernel.PipelineFor(driver, bindings, count), BindingsOf(driver, buffers),
                       static_cast<uint32_t>(stride_ * launches_.size()), dispatch.groups});
}

WGPUBindGroup WebGpuCommands::BindingsOf(WebGpuDriver& driver,
                                         const std::vector<WGPUBuffer>& buffers) {
  Owned<WGPUBindGroup>& group = bindings_[buffers];
  if (group != nullptr) return group.get();
  std::vector<WGPUBindGroupEntry> entries(buffers.size() + 1);
  entries[kArgumentsBinding].buffer = arguments_.get();
  entries[kArgumentsBinding].size = kArgumentBytes;
  for (size_t i = 0; i < buffers.size(); ++i) {
    entries[i + 1].binding = static_cast<uint32_t>(i + 1);
    entries[i + 1].buffer = buffers[i];
    entries[i + 1].size = WGPU_WHOLE_SIZE;
  }
  WGPUBindGroupDescriptor descriptor{};
  descriptor.layout = driver.LayoutFor(static_cast<uint32_t>(buffers.size())).group.get();
  descriptor.entryCount = entries.size();
  descriptor.entries = entries.data();
  auto created = Own(driver.api().DeviceCreateBindGroup(driver.device(), &descriptor),
                     driver.api().BindGroupRelease);
  driver.Check("wgpuDeviceCreateBindGroup");
  group = std::move(created);
  return group.get();
}

void WebGpuCommands::Encode(const Api& api, WGPUCommandEncoder encoder) const {
  WGPUComputePassEncoder pass = api.CommandEncoderBeginComputePass(encoder, nullptr);
  for (const Launch& launch : launches_) {
    api.ComputePassEncoderSetPipeline(pass, launch.pipeline);
    api.ComputePassEncoderSetBindGroup(pass, 0, launch.bindings, 1, &launch.arguments);
    api.ComputePassEncoderDispatchWorkgroups(pass, launch.groups[0], launch.groups[1],
                                             launch.groups[2]);
  }
  api.ComputePassEncoderEnd(pass);
  api.ComputePassEncoderRelease(pass);
}

}  // namespace rullama::webgpu
