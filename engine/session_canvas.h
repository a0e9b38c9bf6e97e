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

// Sets the input "canvas.row" of a canvas with this many rows.
Status SetCanvasRows(Session& session, int64_t canvas_length);

class SessionCanvas final : public CanvasModel {
 public:
  // Begins a canvas that follows the rows that `slot` holds now. `denoise`: the graph of its steps.
  // `session` must outlive this object. Errors: those of the device.
  static Result<SessionCanvas> Begin(Session& session, GraphHandle denoise, int64_t vocabulary,
                                     int64_t canvas_length, int32_t slot);

  // Errors: of the session; backend.token (kBackend) for ids outside the vocabulary.
  Status Denoise(const CanvasRequest& request, CanvasReply& reply) override;

 private:
  SessionCanvas(Session& session, GraphHandle denoise, int64_t vocabulary, int32_t slot);
  [[nodiscard]] Status CheckTokens(std::span<const int32_t> tokens) const;

  Session* session_;
  int64_t vocabulary_;
  int32_t slot_;
  StepRows rows_;  // of the last step; kept for its memory
};

}  // namespace rullama
