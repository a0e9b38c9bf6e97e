// Kernels with their arguments in place, queued one after another for each step.
//
// Thread safety: none; used under the host's lock on the device.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "backends/gpu/driver.h"
#include "backends/opencl/api.h"

namespace rullama::opencl {

class OpenClDriver;

class OpenClCommands final : public gpu::Commands {
 public:
  OpenClCommands(const OpenClDriver& driver, const gpu::Recording& recording);

  // Puts all of it into the queue.
  void Enqueue(OpenClDriver& driver);
  // Driver::TimesOf. Forgets the events.
  void ReadEvents(const OpenClDriver& driver, std::vector<gpu::DispatchTime>& times);

 private:
  struct Launch {
    Owned<cl_kernel> kernel;
    std::array<size_t, 3> global, local;
  };
  static Launch LaunchOf(const OpenClDriver& driver, const gpu::KernelCache& kernels,
                         const gpu::Dispatch& dispatch);

  bool timed_;
  std::vector<Launch> launches_;
  std::vector<Owned<cl_event>> events_;  // of every execution since they were read
};

}  // namespace rullama::opencl
