#include "engine/session_canvas.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace rullama {

Status SetCanvasRows(Session& session, int64_t canvas_length) {
  std::vector<int32_t> index(static_cast<size_t>(canvas_length));
  std::iota(index.begin(), index.end(), 0);
  return session.SetInput(canvas_names::kRow, std::as_bytes(std::span(index)));
}

SessionCanvas::SessionCanvas(Session& session, GraphHandle denoise, int64_t vocabulary,
                             int32_t slot)
    : session_(&session), vocabulary_(vocabulary), slot_(slot) {
  rows_.graph = denoise;
}

Result<SessionCanvas> SessionCanvas::Begin(Session& session, GraphHandle denoise,
                                           int64_t vocabulary, int64_t canvas_length,
                                           int32_t slot) {
  RL_RETURN_IF_ERROR(SetCanvasRows(session, canvas_length));
  return SessionCanvas(session, denoise, vocabulary, slot);
}

Status SessionCanvas::Denoise(const CanvasRequest& request, CanvasReply& reply) {
  // The graph conditions every step on the state; a state of zeros has no effect.
  if (!request.self_conditioned) {
    RL_RETURN_IF_ERROR(session_->ClearState(canvas_names::kSoftEmbedding));
  }
  const auto set = [this](std::string_view name, const auto& values) {
    return session_->SetInput(name, std::as_bytes(std::span(values)));
  };
  RL_RETURN_IF_ERROR(
      set(canvas_names::kInverseTemperature, std::span(&request.inverse_temperature, 1)));
  RL_RETURN_IF_ERROR(set(canvas_names::kUniforms, request.uniforms));
  RL_RETURN_IF_ERROR(set(canvas_names::kNoise, request.noise));
  rows_.SetConsecutive(request.canvas, session_->past(slot_), slot_, DemandMode::kAllRows);
  RL_RETURN_IF_ERROR(session_->Run(rows_));

  const auto read = [this, &request](std::string_view name, auto& values) {
    values.resize(request.canvas.size());
    return session_->ReadOutput(name, std::as_writable_bytes(std::span(values)));
  };
  RL_RETURN_IF_ERROR(read(canvas_names::kBest, reply.best));
  RL_RETURN_IF_ERROR(read(canvas_names::kSampled, reply.sampled));
  RL_RETURN_IF_ERROR(read(canvas_names::kNext, reply.next));
  RL_RETURN_IF_ERROR(read(canvas_names::kEntropy, reply.entropy));
  RL_RETURN_IF_ERROR(read(canvas_names::kAccepted, reply.accepted));
  // Rows whose logits are not numbers have no token: the caller sees that in their entropy.
  if (std::ranges::any_of(reply.entropy, [](float x) { return std::isnan(x); })) return OkStatus();
  for (const auto* tokens : {&reply.best, &reply.sampled, &reply.next}) {
    RL_RETURN_IF_ERROR(CheckTokens(*tokens));
  }
  return OkStatus();
}

Status SessionCanvas::CheckTokens(std::span<const int32_t> tokens) const {
  const auto bad = std::ranges::find_if_not(
      tokens, [this](int32_t token) { return token >= 0 && token < vocabulary_; });
  if (bad == tokens.end()) return OkStatus();
  return MakeError(ErrorKind::kBackend, "backend.token",
                   "plugin '{}' chose token {} for row {} of the canvas, expected 0 to {}; this is "
                   "a bug in the plugin (compare with `--backend reference`)",
                   session_->plugin_name(), *bad, bad - tokens.begin(), vocabulary_ - 1);
}

}  // namespace rullama
