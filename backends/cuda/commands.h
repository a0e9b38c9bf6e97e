// Kernels with their arguments in place: launched one after another, or, once a step has been
// repeated, replayed as a CUDA graph.
//
// Thread safety: none; used under the host's lock on the device.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "backends/cuda/driver.h"

namespace rullama::cuda {

class CudaCommands final : public gpu::Commands {
 public:
  explicit CudaCommands(const gpu::Recording& recording);

  // Puts all of it into the stream. The context is current.
  void Enqueue(CudaDriver& driver);
  // Driver::TimesOf. Forgets the events.
  void ReadEvents(const CudaDriver& driver, std::vector<gpu::DispatchTime>& times);

 private:
  struct Launch {
    CUfunction kernel;
    std::array<uint32_t, 3> groups;
    uint32_t threads;
    uint32_t shared_bytes;
    uint32_t overlap;  // with the kernels before and after it (forms.h)
    std::array<std::byte, gpu::Dispatch::kMaxBytes> arguments;
  };

  static void Start(CudaDriver& driver, Launch& launch, bool early);
  void LaunchAll(CudaDriver& driver);
  void LaunchTimed(CudaDriver& driver);
  // The kernels as a graph. Errors: as Check; the stream then captures no more.
  Owned<CUgraph> Capture(CudaDriver& driver);
  // Leaves graph_ null if the driver makes none.
  void MakeGraph(CudaDriver& driver);

  const bool timed_;
  std::vector<Launch> launches_;
  uint64_t executions_ = 0;
  Owned<CUgraphExec> graph_;   // null until it pays
  bool graph_failed_ = false;  // the driver made none: kernels are launched one by one
  // Events of every execution since they were read: before each kernel, and after the last one.
  std::vector<Owned<CUevent>> events_;
  uint64_t clock_ = 0;  // nanoseconds that all timed executions took
};

}  // namespace rullama::cuda
