#include "backends/cuda/commands.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "backends/cuda/forms.h"
#include "backends/gpu/kernel_cache.h"
#include "backends/gpu/kernel_source.h"

namespace rullama::cuda {
namespace {

// A graph takes longer to make than a step takes: it is made for steps that are repeated.
constexpr uint64_t kExecutionsBeforeGraph = 1;
// Code compiled for this compute capability or a later one waits for the kernel before it
// (WAIT_FOR_LAST in dialect.cuh) and can be launched early.
constexpr uint32_t kLaunchesEarly = 90;

uint64_t ThreadsOf(const gpu::Dispatch& dispatch) {
  const auto& groups = dispatch.groups;
  return uint64_t{groups[0]} * groups[1] * groups[2] * dispatch.pipeline.constants.front();
}

// The largest kernel of a level is first: the others run next to it, and it waits for none of them.
std::vector<size_t> OrderOf(const gpu::Recording& recording) {
  std::vector<size_t> order(recording.dispatches.size());
  std::iota(order.begin(), order.end(), 0);
  if (recording.timed || recording.levels.empty()) return order;
  std::ranges::stable_sort(order, {}, [&](size_t i) {
    return std::pair(recording.levels[i], ~ThreadsOf(recording.dispatches[i]));
  });
  return order;
}

}  // namespace

CudaCommands::CudaCommands(const gpu::Recording& recording) : timed_(recording.timed) {
  launches_.reserve(recording.dispatches.size());
  for (const size_t i : OrderOf(recording)) {
    const gpu::Dispatch& dispatch = recording.dispatches[i];
    const gpu::PipelineKey& key = dispatch.pipeline;
    const auto& kernel = static_cast<const CudaKernel&>(recording.kernels.Get(key));
    launches_.push_back({kernel.function(), dispatch.groups, key.constants.front(),
                         kernel.shared_bytes(), 0, dispatch.push});
  }
  for (size_t i = 1; i < recording.levels.size(); ++i) {
    if (recording.levels[i] != recording.levels[i - 1]) continue;
    launches_[i].overlap |= kOverlapsLast;
    launches_[i - 1].overlap |= kNextOverlaps;
  }
}

void CudaCommands::Start(CudaDriver& driver, Launch& launch, bool early) {
  void* arguments[] = {launch.arguments.data(), &launch.overlap};
  // Then it is launched while the kernel before it runs, for which it waits itself (dialect.cuh).
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  attribute.value.programmaticStreamSerializationAllowed = 1;
  CUlaunchConfig config{};
  config.gridDimX = launch.groups[0];
  config.gridDimY = launch.groups[1];
  config.gridDimZ = launch.groups[2];
  config.blockDimX = launch.threads;
  config.blockDimY = config.blockDimZ = 1;
  config.sharedMemBytes = launch.shared_bytes;
  config.hStream = driver.stream();
  config.attrs = &attribute;
  config.numAttrs = early ? 1 : 0;
  driver.CheckStream(driver.api().LaunchKernelEx(&config, launch.kernel, arguments, nullptr),
                     "cuLaunchKernelEx");
}

void CudaCommands::LaunchAll(CudaDriver& driver) {
  // The first one waits for everything: memory that a kernel reads early may be another step's
  // result.
  const bool can = driver.facts().code_capability >= kLaunchesEarly;
  for (Launch& launch : launches_) Start(driver, launch, can && &launch != &launches_.front());
}

void CudaCommands::LaunchTimed(CudaDriver& driver) {
  const Api& api = driver.api();
  // An execution that fails leaves no events: those of the next one would pair with them.
  std::vector<Owned<CUevent>> events;
  const auto note_time = [&] {
    CUevent event = nullptr;
    driver.CheckStream(api.EventCreate(&event, CU_EVENT_DEFAULT), "cuEventCreate");
    events.push_back(driver.Own(event, api.EventDestroy));
    driver.CheckStream(api.EventRecord(event, driver.stream()), "cuEventRecord");
  };
  for (Launch& launch : launches_) {
    note_time();
    Start(driver, launch, false);
  }
  note_time();
  for (Owned<CUevent>& event : events) events_.push_back(std::move(event));
}

Owned<CUgraph> CudaCommands::Capture(CudaDriver& driver) {
  const Api& api = driver.api();
  driver.CheckStream(api.StreamBeginCapture(driver.stream(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
                     "cuStreamBeginCapture");
  CUgraph graph = nullptr;
  try {
    LaunchAll(driver);
  } catch (...) {
    // A capture that has failed gives no graph.
    if (api.StreamEndCapture(driver.stream(), &graph) == CUDA_SUCCESS && graph != nullptr) {
      api.GraphDestroy(graph);
    }
    throw;
  }
  driver.CheckStream(api.StreamEndCapture(driver.stream(), &graph), "cuStreamEndCapture");
  return driver.Own(graph, api.GraphDestroy);
}

void CudaCommands::MakeGraph(CudaDriver& driver) {
  const Owned<CUgraph> graph = Capture(driver);
  CUgraphExec executable = nullptr;
  graph_failed_ =
      driver.api().GraphInstantiateWithFlags(&executable, graph.get(), 0) != CUDA_SUCCESS;
  if (!graph_failed_) graph_ = driver.Own(executable, driver.api().GraphExecDestroy);
}

void CudaCommands::Enqueue(CudaDriver& driver) {
  if (timed_) return LaunchTimed(driver);
  if (!graph_ && !graph_failed_ && driver.options().graphs && !launches_.empty() &&
      executions_++ >= kExecutionsBeforeGraph) {
    MakeGraph(driver);
  }
  if (!graph_) return LaunchAll(driver);
  driver.CheckStream(driver.api().GraphLaunch(graph_.get(), driver.stream()), "cuGraphLaunch");
}

// Times of an execution follow those of the one before.
void CudaCommands::ReadEvents(const CudaDriver& driver, std::vector<gpu::DispatchTime>& times) {
  const size_t of_execution = launches_.size() + 1;
  for (size_t i = 0; i + 1 < events_.size(); ++i) {
    if ((i + 1) % of_execution == 0) continue;  // from the end of an execution to the next one
    float milliseconds = 0;
    Check(driver.api(),
          driver.api().EventElapsedTime(&milliseconds, events_[i].get(), events_[i + 1].get()),
          "cuEventElapsedTime");
    constexpr float kNanoseconds = 1e6F;
    const auto took = static_cast<uint64_t>(milliseconds * kNanoseconds);
    times.push_back({clock_, clock_ + took});
    clock_ += took;
  }
  events_.clear();
}

}  // namespace rullama::cuda
