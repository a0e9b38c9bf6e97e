// Denoises the canvases of jobs, with a model that does so: one canvas at a time, slot after slot.
//
// Ownership: borrows all. Thread safety: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "core/base/status.h"
#include "core/runtime/session.h"
#include "engine/canvas_generator.h"
#include "engine/scheduling/canvas_writer.h"
#include "engine/scheduling/engine_counters.h"
#include "engine/scheduling/scheduler_options.h"
#include "engine/scheduling/slot_contents.h"
#include "engine/scheduling/slot_jobs.h"

namespace rullama {

class CanvasLoop {
 public:
  // `options.canvas` is set.
  CanvasLoop(Session& session, MakeCanvasWriter make_writer, const SchedulerOptions& options,
             SlotContents& contents, SlotJobs& jobs, EngineCounters& counters)
      : session_(session),
        make_writer_(std::move(make_writer)),
        options_(options),
        contents_(contents),
        jobs_(jobs),
        counters_(counters) {}

  // Compiles what the canvases of a job need, unless it wants none, so that nothing is compiled
  // between the first one and the last.
  Status Prepare(const Job& job);
  // Lets a slot that has read its prompt write canvases, or ends its job if that wants none.
  Status Begin(int32_t slot);
  // Takes a step of a canvas. Returns whether there was one.
  bool Step();

 private:
  // The job whose canvas is begun and not finished.
  struct Turn {
    int32_t slot = 0;
    uint64_t number = 0;  // RunningJob::number
  };
  // Sets turn_ unless it is set, and its job is still there.
  void ChooseTurn();
  // Hands out what a step of a canvas has given.
  void TakeProgress(int32_t slot, const CanvasGenerator::Progress& progress);

  Session& session_;
  const MakeCanvasWriter make_writer_;
  const SchedulerOptions& options_;
  SlotContents& contents_;
  SlotJobs& jobs_;
  EngineCounters& counters_;
  std::optional<Turn> turn_;
  int32_t next_slot_ = 0;  // whose turn is next
};

}  // namespace rullama
