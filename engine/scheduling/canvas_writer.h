// Writes the canvases of one answer, one step at a time. CanvasLoop decides whose turn it is.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "core/base/status.h"
#include "core/runtime/session.h"
#include "engine/canvas_generator.h"
#include "engine/job.h"
#include "engine/scheduling/scheduler_options.h"

namespace rullama {

class CanvasWriter {
 public:
  CanvasWriter() = default;
  CanvasWriter(const CanvasWriter&) = delete;
  CanvasWriter& operator=(const CanvasWriter&) = delete;
  virtual ~CanvasWriter() = default;

  // As those of CanvasGenerator.
  virtual Result<CanvasGenerator::Progress> Advance(int64_t max_tokens) = 0;
  [[nodiscard]] virtual std::span<const int32_t> canvas() const = 0;
  [[nodiscard]] virtual int64_t canvases() const = 0;
};

// Makes the writer of a job whose prompt `slot` has read.
using MakeCanvasWriter =
    std::function<Result<std::unique_ptr<CanvasWriter>>(int32_t slot, const Job& job)>;

// Writers that use the model of a session; both are borrowed. `options.canvas` is set. Errors of
// the function: those of MakeCanvasRandom().
[[nodiscard]] MakeCanvasWriter CanvasWritersOf(Session& session, const SchedulerOptions& options);

}  // namespace rullama
