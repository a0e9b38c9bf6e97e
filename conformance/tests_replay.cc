// Plans that run again and again: as a fresh plan would, as the reference does, and without
// compiling, allocating or recording anything.
#include <malloc.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define RULLAMA_SANITIZED_HEAP
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define RULLAMA_SANITIZED_HEAP
#endif
#endif
#ifdef RULLAMA_SANITIZED_HEAP
#include <sanitizer/allocator_interface.h>
#endif

#include <algorithm>
#include <cstdint>
#include <thread>

#include "conformance/check.h"
#include "conformance/layer.h"
#include "conformance/suite.h"

namespace rullama::conformance {
namespace {

constexpr int kExecutions = 64;

Status BindStep(Program& program, const Steps::Step& step) {
  for (const auto& [name, bytes] : step.inputs) RL_RETURN_IF_ERROR(program.Bind(name, bytes));
  return OkStatus();
}

// The case of one step: for the reference, and for reading results.
Case At(const Case& test, const Steps::Step& step, const std::map<std::string, Bytes>& states) {
  Case now = test;
  now.extents = step.extents;
  for (const auto& [name, bytes] : step.inputs) now.data[name] = bytes;
  for (const auto& [name, bytes] : states) {
    if (now.data.contains(name)) now.data[name] = bytes;
  }
  return now;
}

// 64 executions with changing T, R, past and slots: each equal to a fresh plan on the same states,
// and as close to the reference as one execution has to be.
Status ReplayEqualsFresh(Suite& suite, Device& device, const Case& test, uint64_t seed,
                         bool with_reference) {
  RL_ASSIGN_OR_RETURN(const auto replayed, Program::Create(device, test));
  RL_RETURN_IF_ERROR(replayed->BindAll(test));
  Steps steps(test, seed);
  std::map<std::string, Bytes> states;
  for (int i = 0; i < kExecutions; ++i) {
    const Steps::Step step = steps.Next();
    const Case now = At(test, step, states);
    RL_RETURN_IF_ERROR(BindStep(*replayed, step));
    RL_RETURN_IF_ERROR(replayed->Run(step.extents));
    RL_ASSIGN_OR_RETURN(states, ReadResults(*replayed, now));

    RL_ASSIGN_OR_RETURN(const auto fresh, Program::Create(device, now));
    RL_RETURN_IF_ERROR(fresh->Poison(0x7E));
    RL_RETURN_IF_ERROR(fresh->BindAll(now));
    RL_RETURN_IF_ERROR(fresh->Run(step.extents));
    RL_ASSIGN_OR_RETURN(const auto expected, ReadResults(*fresh, now));
    RL_ASSIGN_OR_RETURN(const std::string difference, Difference(now, expected, states));
    if (device.description().deterministic && !difference.empty()) {
      return Failed("execution {} (T = {}, R = {}) differs from a fresh plan: {}", i + 1,
                    step.extents.t, step.extents.r, difference);
    }
    if (!with_reference) continue;
    RL_ASSIGN_OR_RETURN(const auto ran, RunReference(now));
    RL_RETURN_IF_ERROR(CompareWithReference(now, ran, states, suite.manifest.activations));
  }
  return replayed->CheckGuards();
}

Status EqualsAFreshPlan(Suite& suite, Device& device) {
  const uint64_t seed = SeedOf(suite, "Replay");
  RL_ASSIGN_OR_RETURN(const Case test, RichestCase(device, seed));
  return ReplayEqualsFresh(suite, device, test, seed, true);
}

// With block weights a plan keeps more between executions: quantised activations, whose number
// changes with T. The results are not compared with the reference: rounding may change which of
// several close values is the largest.
Status BlockWeightsEqualAFreshPlan(Suite& suite, Device& device) {
  const uint64_t seed = SeedOf(suite, "ReplayBlocks");
  if (!device.description().deterministic) return Unsupported("the device is not deterministic");
  const Case test = LayerCase(seed, DType::kQ8_0);
  RL_ASSIGN_OR_RETURN(std::string refusal, WhyUnsupported(device, test.graph));
  if (!refusal.empty()) return Unsupported(std::move(refusal));
  return ReplayEqualsFresh(suite, device, test, seed, false);
}

Status CountersStayFlat(Suite& suite, Device& device) {
  const uint64_t seed = SeedOf(suite, "Counters");
  RL_ASSIGN_OR_RETURN(const Case test, RichestCase(device, seed));
  RL_ASSIGN_OR_RETURN(const auto program, Program::Create(device, test));
  RL_RETURN_IF_ERROR(program->BindAll(test));
  Steps steps(test, seed);
  rl_plan_stats first{};
  for (int i = 0; i < kExecutions; ++i) {
    const Steps::Step step = steps.Next();
    RL_RETURN_IF_ERROR(BindStep(*program, step));
    RL_RETURN_IF_ERROR(program->Run(step.extents));
    RL_ASSIGN_OR_RETURN(const rl_plan_stats stats, program->Stats());
    if (stats.executions != static_cast<uint64_t>(i) + 1) {
      return Failed("{} executions are counted after {}", stats.executions, i + 1);
    }
    if (i == 0) first = stats;
    if (stats.compilations != first.compilations || stats.allocations != first.allocations ||
        stats.recordings != first.recordings) {
      return Failed(
          "execution {}: {} compilations, {} allocations, {} recordings; after the first they were "
          "{}, {}, {}",
          i + 1, stats.compilations, stats.allocations, stats.recordings, first.compilations,
          first.allocations, first.recordings);
    }
  }
  return OkStatus();
}

// Bytes of the heap in use by this process.
size_t HeapBytes() {
#ifdef RULLAMA_SANITIZED_HEAP
  return __sanitizer_get_current_allocated_bytes();
#else
  const struct mallinfo2 info = ::mallinfo2();
  return info.uordblks + info.hblkhd;
#endif
}

// What Stats() claims of executions after the first, seen from outside. Pools may grow once: only
// memory that is taken in both halves is a leak.
Status MemoryStaysFlat(Suite& suite, Device& device) {
  constexpr int kHalf = 49;
  constexpr size_t kTolerated = size_t{kHalf} * 32;  // the smallest block for each execution
  RL_ASSIGN_OR_RETURN(const Case test, RichestCase(device, SeedOf(suite, "Memory")));
  RL_ASSIGN_OR_RETURN(const auto program, Program::Create(device, test));
  RL_RETURN_IF_ERROR(program->BindAll(test));
  RL_RETURN_IF_ERROR(program->Run(test.extents));
  size_t least = SIZE_MAX, before = HeapBytes();
  for (int half = 0; half < 2; ++half) {
    for (int i = 0; i < kHalf; ++i) RL_RETURN_IF_ERROR(program->Run(test.extents));
    const size_t after = HeapBytes();
    least = std::min(least, after > before ? after - before : 0);
    before = after;
  }
  if (least < kTolerated) return OkStatus();
  return Failed("executions 2 to {} of a plan took {} bytes of host memory each, and kept them",
                2 * kHalf + 1, least / kHalf);
}

// Results are as close to the reference when every value is marked as observed, and each value then
// holds what its op computes. Last bits may differ: an observed value is not fused away, and
// kernels of their own may sum in another order.
Status ObservationKeepsResults(Suite& suite, Device& device) {
  RL_ASSIGN_OR_RETURN(const Case test, RichestCase(device, SeedOf(suite, "Observation")));
  RL_ASSIGN_OR_RETURN(const auto ran, RunReference(test));
  for (const bool observed : {false, true}) {
    RL_ASSIGN_OR_RETURN(const auto program, Program::Create(device, test, observed));
    RL_RETURN_IF_ERROR(program->Poison(0xFF));
    RL_RETURN_IF_ERROR(program->BindAll(test));
    RL_RETURN_IF_ERROR(program->Run(test.extents));
    RL_ASSIGN_OR_RETURN(auto values, ReadResults(*program, test));
    for (const Value& value : test.graph.values) {
      if (!observed || value.lifetime != Lifetime::kTransient) continue;
      RL_ASSIGN_OR_RETURN(values[value.name], program->Read(value.name, test.extents));
    }
    RL_RETURN_IF_ERROR(CompareWithReference(test, ran, values, suite.manifest.activations));
  }
  return OkStatus();
}

// Two devices of one plugin, each on a thread of its own: the same bytes as alone.
Status DevicesAreIndependent(Suite& suite, Device& device) {
  constexpr int kRounds = 20;
  RL_ASSIGN_OR_RETURN(const Case test, RichestCase(device, SeedOf(suite, "Threads")));
  const auto run = [&](Device& on) -> Result<std::map<std::string, Bytes>> {
    RL_ASSIGN_OR_RETURN(const auto program, Program::Create(on, test));
    RL_RETURN_IF_ERROR(program->BindAll(test));
    RL_RETURN_IF_ERROR(program->Run(test.extents));
    return ReadResults(*program, test);
  };
  RL_ASSIGN_OR_RETURN(const auto alone, run(device));
  std::vector<std::unique_ptr<Device>> devices;
  for (int i = 0; i < 2; ++i) {
    RL_ASSIGN_OR_RETURN(auto opened, suite.Open());
    devices.push_back(std::move(opened));
  }
  std::vector<Status> outcomes(devices.size(), OkStatus());
  std::vector<std::thread> threads;
  threads.reserve(devices.size());
  for (size_t i = 0; i < devices.size(); ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < kRounds && outcomes[i]; ++round) {
        const auto results = run(*devices[i]);
        if (!results) {
          outcomes[i] = tl::unexpected(results.error());
        } else if (device.description().deterministic && *results != alone) {
          outcomes[i] = Failed("device {} computes something else while another one runs", i);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Status& outcome : outcomes) RL_RETURN_IF_ERROR(outcome);
  return OkStatus();
}

}  // namespace

void AddReplayTests(std::vector<NamedTest>& tests) {
  tests.push_back({"Replay.equals_a_fresh_plan_and_the_reference", EqualsAFreshPlan});
  tests.push_back({"Replay.block_weights_equal_a_fresh_plan", BlockWeightsEqualAFreshPlan});
  tests.push_back({"Replay.counters_stay_flat", CountersStayFlat});
  tests.push_back({"Replay.memory_stays_flat", MemoryStaysFlat});
  tests.push_back({"Observation.keeps_results", ObservationKeepsResults});
  tests.push_back({"Concurrency.devices_are_independent", DevicesAreIndependent});
}

}  // namespace rullama::conformance
