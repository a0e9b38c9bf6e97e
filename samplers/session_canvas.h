// A model that denoises, on a session: the link between its graph and the entropy-bound loop. Token
// ids, random numbers and statistics cross to the host and back; logits stay on the device.
//
// Thread safety: one thread per object and session.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/status.h"
#include "core/runtime/session.h"
#include "samplers/entropy_bound.h"

namespace rullama {

// The graphs of a session whose model denoises, by index.
enum CanvasGraph : size_t { kEncodeGraph = 0, kDenoiseGraph = 1, kConditionGraph = 2 };

// How many rows a slot's canvas has and where in the sequence they are: behind what the slot holds.
class CanvasRows {
 public:
  CanvasRows(int64_t length, int32_t slot, int32_t first_position);
  // A step over `tokens` (as many as the canvas has rows), with all rows wanted.
  [[nodiscard]] StepRows Step(std::span<const int32_t> tokens, CanvasGraph graph) const;
  [[nodiscard]] std::span<const int32_t> index() const { return index_; }  // 0, 1, 2, ...

 private:
  std::vector<int32_t> index_, pos_, slot_;
};

class SessionCanvas final : public CanvasModel {
 public:
  // For a canvas behind what `slot` holds now. `session` outlives this object. Errors: of the
  // device.
  static Result<SessionCanvas> Begin(Session& session, int64_t canvas_length, int32_t slot);

  Status Denoise(const CanvasRequest& request, CanvasReply& reply) override;

 private:
  SessionCanvas(Session& session, int64_t canvas_length, int32_t slot);

  Session* session_;
  CanvasRows rows_;
};

}  // namespace rullama
