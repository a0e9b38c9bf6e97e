#include "backends/opencl/commands.h"

#include <cstdint>
#include <cstring>
#include <string>

#include "backends/gpu/kernel_cache.h"
#include "backends/gpu/kernel_source.h"
#include "backends/opencl/driver.h"

namespace rullama::opencl {
namespace {

// The offset that stands for a null pointer.
constexpr uint64_t kNullOffset = UINT64_MAX;
// The size of the push constants is a multiple of this, as that of a struct with addresses is.
constexpr uint64_t kPushAlignment = 8;

}  // namespace

OpenClCommands::OpenClCommands(const OpenClDriver& driver, const gpu::Recording& recording)
    : timed_(recording.timed) {
  launches_.reserve(recording.dispatches.size());
  for (const gpu::Dispatch& dispatch : recording.dispatches) {
    launches_.push_back(LaunchOf(driver, recording.kernels, dispatch));
  }
}

// Arguments: a buffer for each address, in their order, whose place in the push constants takes the
// offset; the push constants; of some kernels, constants.
OpenClCommands::Launch OpenClCommands::LaunchOf(const OpenClDriver& driver,
                                                const gpu::KernelCache& kernels,
                                                const gpu::Dispatch& dispatch) {
  const gpu::PipelineKey& key = dispatch.pipeline;
  Launch launch;
  launch.kernel = driver.programs().NewKernel(kernels.Get(key), key);
  cl_uint argument = 0;
  const auto set = [&](size_t size, const void* value) {
    Check(driver.api().SetKernelArg(launch.kernel.get(), argument, size, value),
          "clSetKernelArg " + std::to_string(argument) + " of " +
              std::string(gpu::NameOf(key.shader)));
    ++argument;
  };
  auto push = dispatch.push;
  for (const uint32_t at : dispatch.pointers) {
    gpu::DeviceAddress address = 0;
    std::memcpy(&address, push.data() + at, sizeof(address));
    Place place{nullptr, kNullOffset};
    if (address != 0) place = driver.PlaceOf(address);
    std::memcpy(push.data() + at, &place.offset, sizeof(place.offset));
    set(sizeof(cl_mem), static_cast<const void*>(&place.buffer));
  }
  set(gpu::RoundUp(dispatch.push_bytes, kPushAlignment), push.data());
  const std::vector<uint32_t> constants = driver.programs().ArgumentsOf(key);
  if (!constants.empty()) set(constants.size() * sizeof(uint32_t), constants.data());
  launch.local = {key.constants.front(), 1, 1};
  for (size_t axis = 0; axis < 3; ++axis) {
    launch.global[axis] = dispatch.groups[axis] * launch.local[axis];
  }
  return launch;
}

void OpenClCommands::Enqueue(OpenClDriver& driver) {
  for (const Launch& launch : launches_) {
    cl_event event = nullptr;
    driver.CheckQueue(driver.api().EnqueueNDRangeKernel(
                          driver.queue(), launch.kernel.get(), 3, nullptr, launch.global.data(),
                          launch.local.data(), 0, nullptr, timed_ ? &event : nullptr),
                      "clEnqueueNDRangeKernel");
    if (timed_) events_.push_back(Own(event, driver.api().ReleaseEvent));
  }
}

void OpenClCommands::ReadEvents(const OpenClDriver& driver, std::vector<gpu::DispatchTime>& times) {
  const auto time_of = [&](const Owned<cl_event>& event, cl_profiling_info what) {
    cl_ulong time = 0;
    Check(driver.api().GetEventProfilingInfo(event.get(), what, sizeof(time), &time, nullptr),
          "clGetEventProfilingInfo");
    return uint64_t{time};
  };
  for (const Owned<cl_event>& event : events_) {
    times.push_back(
        {time_of(event, CL_PROFILING_COMMAND_START), time_of(event, CL_PROFILING_COMMAND_END)});
  }
  events_.clear();
}

}  // namespace rullama::opencl
