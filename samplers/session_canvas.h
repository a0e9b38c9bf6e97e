// Connects the entropy-bound loop to a block-diffusion model in a session. Token ids, random
// numbers and statistics are copied between host and device; logits stay on the device.
//
// Thread safety: one thread per object and session.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/status.h"
#include "core/runtime/session.h"
#include "samplers/entropy_bound.h"

namespace rullama {

// Indices of the graphs of a session with a block-diffusion model.
enum CanvasGraph : size_t { kEncodeGraph = 0, kDenoiseGraph = 1, kConditionGraph = 2 };

// The rows of a slot's canvas. Their positions follow the cached rows of the slot.
class CanvasRows {
 public:
  CanvasRows(int64_t length, int32_t slot, int32_t first_position);
  // A step over `tokens`, one per row of the canvas, with all rows wanted.
  [[nodiscard]] StepRows Step(std::span<const int32_t> tokens, CanvasGraph graph) const;
  [[nodiscard]] std::span<const int32_t> index() const { return index_; }  // 0, 1, 2, ...

 private:
  std::vector<int32_t> index_, pos_, slot_;
};

class SessionCanvas final : public CanvasModel {
 public:
  // For a canvas that follows the rows that `slot` holds now. `session` must outlive this object.
  // Errors: those of the device.
  static Result<SessionCanvas> Begin(Session& session, int64_t vocabulary, int64_t canvas_length,
                                     int32_t slot);

  // Errors: of the session; backend.token (kBackend) for ids that are none of the vocabulary.
  Status Denoise(const CanvasRequest& request, CanvasReply& reply) override;

 private:
  SessionCanvas(Session& session, int64_t vocabulary, int64_t canvas_length, int32_t slot);
  [[nodiscard]] Status CheckTokens(std::span<const int32_t> tokens) const;

  Session* session_;
  int64_t vocabulary_;
  CanvasRows rows_;
};

}  // namespace rullama
